"""What `flux top` shows of what it was told, and what keys change: on screens of text, without a terminal."""

from __future__ import annotations

import pytest

from headrace.cli.top.layout import ASCII, UNICODE, Signs, dump, pieces
from headrace.cli.top.view import Instance, View
from headrace.wire.query.job_info import JobInfo

NOW = 1000.0
_STATES = {"depend": 1, "priority": 2, "sched": 3, "run": 4, "cleanup": 5, "inactive": 6}
_STATS = {
    "job_states": _STATES,
    **{"successful": 7, "failed": 8, "canceled": 9, "timeout": 10},
    "queues": [{"name": "a", "job_states": {**_STATES, "run": 40}, "successful": 1, "failed": 0}],
}


def _view(jobs: int = 3, queues: tuple[str, ...] = (), title: str = "", expiration: float = 0.0) -> View:
    view = View(Instance(title, 4, 1, "0.1", NOW - 90, expiration), {"queues": {name: {} for name in queues}}, True)
    view.stats = _STATS
    view.jobs = [
        JobInfo({"id": n, "name": f"job{n}", "userid": 0, "state": 16, "ntasks": n, "nnodes": 1, "t_run": NOW - n})
        for n in range(1, jobs + 1)
    ]
    for job in view.jobs:
        job.raw["queue"] = queues[job.id % len(queues)] if queues else ""
    return view


def _screen(view: View, rows: int = 24, columns: int = 80, signs: Signs = UNICODE) -> list[str]:
    """The lines of a screen of this size; what lies outside is cut off."""
    cells = [[" "] * columns for _ in range(rows)]
    for piece in pieces(view, NOW, rows, columns, signs):
        for offset, char in enumerate(piece.text):
            if piece.row < rows and piece.column + offset < columns:
                cells[piece.row][piece.column + offset] = char
    return ["".join(line).rstrip() for line in cells]


def test_a_screen_of_80_columns():
    view = _view(2, title="ƒA/ƒB", expiration=NOW + 60)
    view.selected = 1
    ranks = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}], "nodelist": ["n[0-3]"]},
    }
    used = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["n0"]}}
    view.set_resources({"all": ranks, "allocated": used, "down": None})
    assert _screen(view)[:10] == [
        "ƒ                                 ƒA/ƒB                                     1m⌚",
        "    nodes [|||||||                  1/4]                        6 pending",
        "    cores [||||                     1/8]                        9 running",
        "     gpus [                         0/0]       7 complete,     27 failed",
        "",
        " size: 4      depth: 1         uptime: 1.5m                                 0.1",
        "        JOBID     USER ST NTASKS NNODES RUNTIME NAME",
        "           ƒ2     root  R      1      1      1s job1",
        "           ƒ3     root  R      2      1      2s job2",
        "",
    ]


@pytest.mark.parametrize("columns", [1, 40, 62, 80, 300])
@pytest.mark.parametrize("rows", [1, 6, 8, 100])
def test_any_size_has_a_screen(rows, columns):
    lines = _screen(_view(50, ("a", "b"), title="x" * 500), rows, columns)
    assert len(lines) == rows


def test_a_narrow_screen_has_all_that_fits():
    lines = _screen(_view(), 24, 62)
    assert "6 pending" in lines[1] and "27 failed" in lines[3] and "nodes [" in lines[1]


def test_a_long_title_keeps_its_end():
    (line, *_) = _screen(_view(title="/".join(f"job{n}" for n in range(100))))
    assert "…" in line and line.rstrip("∞ ").endswith("job99")


def test_signs_for_locales_without_the_characters():
    lines = _screen(_view(expiration=NOW + 60), signs=ASCII)
    assert lines[0][0] == "f" and lines[0].endswith("1m left")
    assert "".join(lines).replace("ƒ", "").isascii()


def test_the_numbers_of_a_queue_are_its_own_and_none_before_its_first_job():
    view = _view(3, ("a", "b"))
    view.rotate(1)
    assert (view.queue, view.running(), view.unsuccessful()) == ("a", 45, 0)
    view.rotate(1)
    assert (view.queue, view.running(), view.pending()) == ("b", 0, 0)
    view.rotate(1)
    assert (view.queue, view.running()) == ("", 9)
    view.rotate(-1)
    assert view.queue == "b"


def test_a_queue_without_jobs_says_so():
    view = _view(0, ("a", "b"))
    view.choose_queue("b")
    assert "No jobs to display in queue b" in "".join(_screen(view))
    with pytest.raises(ValueError, match="queue c not configured"):
        view.choose_queue("c")


def test_the_cursor_goes_round_and_stays_on_its_job():
    view = _view(3)
    seen = []
    for step in (1, 1, 1, 1, -1, -1):
        view.move(step)
        seen.append(view.selected)
    assert seen == [1, 2, 3, 1, 3, 2]
    view.jobs = view.jobs[1:]
    assert view.selected_job() is view.jobs[0]
    view.jobs = view.jobs[1:]
    assert view.selected_job() is None
    view.move(-1)
    assert view.selected == 3
    view.jobs = []
    view.move(1)
    assert view.selected_job() is None


def test_the_list_follows_the_cursor_beyond_the_lowest_row():
    view = _view(30)
    view.move(-1)
    lines = _screen(view, rows=12)
    assert lines[-1].endswith("job30") and lines[7].endswith("job26")


def test_names_with_escape_sequences_do_not_reach_the_terminal():
    view = _view(1)
    view.jobs[0].raw["name"] = "a\x1b[2J\nb"
    assert _screen(view)[7].endswith("a\\x1b[2J\\nb")


def test_a_message_lies_over_the_list_in_lines_that_fit():
    view = _view(30)
    view.message = "first\n" + "x" * 100
    lines = _screen(view)
    assert lines[9].startswith("  | first ") and lines[10].startswith(f"  | {'x' * 72} |")
    assert lines[11].startswith(f"  | {'x' * 28} ")


def test_a_dump_has_what_is_shown():
    view = _view(1)
    assert dump(view, NOW) == (
        "6 pending\n9 running\n7 complete\n27 failed\nnodes 0/0\ncores 0/0\ngpus 0/0\nƒ2 root R 1 1 1s job1\n"
    )
    view.ended_in_detail = False
    assert "6 inactive\n" in dump(view, NOW)
