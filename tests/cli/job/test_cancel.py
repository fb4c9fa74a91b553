"""flux cancel: what counts as canceled, and what as an error."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import cancel

GONE = OSError(errno.ENOENT, "job is inactive")
REFUSED = OSError(errno.EPERM, "not your job")


@pytest.mark.parametrize(
    ("replies", "code", "told"),
    [
        ([{}, GONE], 0, "flux-cancel: Canceled 1 job (0 errors)\n"),
        ([{}, REFUSED], 1, "flux-cancel: ERROR: ƒ3: not your job\nflux-cancel: Canceled 1 job (1 error)\n"),
    ],
)
@pytest.mark.parametrize("argv", [["--all"], ["--all", "--quiet"]])
def test_a_job_that_ended_since_it_was_listed_is_no_error(
    answers: Any, capsys: Any, replies: list[object], code: int, told: str, argv: list[str]
) -> None:
    broker = answers(cancel, job_list__list={"jobs": [{"id": 2}, {"id": 3}]}, job_manager__raise=replies)
    assert cancel.main(argv) == code
    assert [body["id"] for topic, body in broker.asked if topic == "job-manager.raise"] == [3, 2]
    assert capsys.readouterr().err.replace("f3", "ƒ3") == told


def test_one_that_was_named_and_has_ended_is(answers: Any, capsys: Any) -> None:
    answers(cancel, job_manager__raise=GONE)
    assert cancel.main(["5"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("flux-cancel: ERROR: ") and told.endswith("6: job is inactive\n")


@pytest.mark.parametrize(("argv", "told"), [(["--all"], "flux-cancel: Matched 0 jobs\n"), (["--all", "-q"], "")])
def test_quiet_is_about_what_nothing_matches(answers: Any, capsys: Any, argv: list[str], told: str) -> None:
    answers(cancel, job_list__list={"jobs": []})
    assert cancel.main(argv) == 0
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("jobs", "argv", "told"),
    [
        ([2], ["--all"], "Would cancel 1 job"),
        ([2, 3], ["--states=pending,RUN"], "Would cancel 2 jobs"),
        ([], ["5"], "Would cancel 1 job"),
        ([], ["5", "6"], "Would cancel 2 jobs"),
    ],
)
def test_a_dry_run_only_counts(answers: Any, capsys: Any, jobs: list[int], argv: list[str], told: str) -> None:
    answers(cancel, job_list__list={"jobs": [{"id": id} for id in jobs]})
    assert cancel.main(["--dry-run", *argv]) == 0
    assert capsys.readouterr().err == f"flux-cancel: {told}\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "No target jobs were provided"),
        (["--all", "5"], "Do not specify a list of jobids with --all,--user,--states options"),
        (["--states=run,inactive"], "Invalid state inactive specified"),
        (["--states=cleanup"], "Invalid state cleanup specified"),
        (["--states=nosuch"], "Invalid state nosuch specified"),
    ],
)
def test_what_names_no_jobs_is_refused(answers: Any, argv: list[str], text: str) -> None:
    answers(cancel)
    with pytest.raises(CommandError) as refused:
        cancel.main(argv)
    assert refused.value.text == text
