"""The counts and the line of `flux submit --progress`."""

from __future__ import annotations

import pytest

from headrace.cli.common.progress import Progress


def counts(progress: Progress) -> tuple[int, int, int, int]:
    return progress.pending, progress.running, progress.completed, progress.failed


def played(*events: str) -> Progress:
    """After these events of one job; a number is a finish with that status."""
    progress = Progress(2, followed=True)
    progress.submitted = progress.pending = 1
    for name in events:
        context = {"status": int(name)} if name.isdigit() else {"severity": 0, "type": "x"}
        if name == "warning":
            context = {"severity": 3}
        known = {"warning": "exception"}.get(name, "finish" if name.isdigit() else name)
        progress.event(7, known, context)
    return progress


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (["submit"], (1, 0, 0, 0)),
        (["submit", "alloc"], (0, 1, 0, 0)),
        (["submit", "alloc", "0"], (0, 0, 1, 0)),
        (["submit", "alloc", "256", "clean"], (0, 0, 0, 1)),
        (["submit", "alloc", "0", "clean"], (0, 0, 1, 0)),
        # Canceled while it waited, also twice.
        (["submit", "exception", "exception", "clean"], (0, 0, 0, 1)),
        # Killed: the end is yet to come.
        (["submit", "alloc", "exception"], (0, 1, 0, 0)),
        (["submit", "alloc", "exception", "9", "clean"], (0, 0, 0, 1)),
        # Canceled before it was started: there is no `finish`.
        (["submit", "alloc", "exception", "clean"], (0, 0, 0, 1)),
        (["submit", "warning"], (1, 0, 0, 0)),
    ],
)
def test_every_job_is_counted_once(events: list[str], expected: tuple[int, ...]) -> None:
    assert counts(played(*events)) == expected


def test_the_line_fills_the_terminal_as_jobs_end() -> None:
    progress = played("submit", "alloc", "0")
    line = progress.line(60)
    assert len(line) == 60
    assert line.startswith("PD:0   R:0   CD:1   F:0   │█")
    assert line.endswith("│ 50.0% 0:00:00")
    # A terminal may be narrower than what there is to say.
    assert progress.line(5).startswith("PD:0")


def test_what_is_not_followed_counts_as_done_when_it_is_submitted() -> None:
    progress = Progress(4, followed=False, show_rate=True)
    progress.submitted = 3
    progress.refused()
    assert progress.line(50).startswith("4 jobs │█")
    assert "│100.0% " in progress.line(50) and progress.line(50).endswith(" job/s")
    assert "│  0.0% " in Progress(0, followed=False).line(50)
