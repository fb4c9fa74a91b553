"""Listings for programs: what job-list is asked for, and its answers as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import listing

JOBS = [{"jobs": [{"id": 1}, {"id": 2}]}, {"jobs": [{"id": 3, "name": "ƒ"}]}]


@pytest.mark.parametrize(
    ("argv", "constraint", "more"),
    [
        ([], [{"userid": [os.getuid()]}, {"states": [62]}], {}),
        (["-a", "-A", "-c", "5"], [{"states": [126]}], {"max_entries": 5}),
        (["-s", "run,sched", "-u", "12"], [{"userid": [12]}, {"states": [24]}], {}),
        (["-A", "-S", "100.5"], [{"states": [62]}], {"since": 100.5}),
    ],
)
def test_the_limits_of_a_listing_are_the_requests(
    answers: Any, argv: list[str], constraint: list[Any], more: dict[str, Any], capsys: Any
) -> None:
    broker = answers(listing, job_list__list=JOBS)
    assert listing.list(argv) == 0
    asked = {"max_entries": 0, "attrs": ["all"], "constraint": {"and": constraint}, **more}
    assert broker.asked == [("job-list.list", asked)]
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [1, 2, 3]


def test_jobs_are_waited_for_by_id(answers: Any, capsys: Any) -> None:
    broker = answers(listing, job_list__list_id=[{"job": {"id": 1}}, {"job": {"id": 2}}])
    assert listing.list_ids(["-W", "inactive", "f2", "f3"]) == 0
    assert [body for _, body in broker.asked] == [{"id": id, "attrs": ["all"], "state": 64} for id in (1, 2)]
    assert capsys.readouterr().out == '{"id": 1}\n{"id": 2}\n'


@pytest.mark.parametrize(
    ("command", "argv"),
    [(listing.list, ["-S", "-1"]), (listing.list, ["-c", "-1"]), (listing.list_inactive, ["-S", "noon"])],
)
def test_counts_and_times_are_numbers_from_0(command: Any, argv: list[str]) -> None:
    with pytest.raises(CommandError, match="--count and --since are numbers from 0"):
        command(argv)


def test_on_a_terminal_who_lists_jobs_is_sent_to_the_command_for_that(monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(CommandError, match="flux-jobs"):
        listing.list([])
