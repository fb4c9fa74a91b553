"""The query that lists of jobs are made of."""

from __future__ import annotations

import errno
import os
import pwd
from typing import Any

import pytest

from headrace.wire.query import QueryError, listing
from headrace.wire.query.listing import Query
from scripted import Answers


def test_a_user_is_a_name_a_number_or_all() -> None:
    query = Query()
    query.user("all")
    query.user("4711")
    query.user(pwd.getpwuid(os.getuid()).pw_name)
    assert query.clauses == [{"userid": [4711]}, {"userid": [os.getuid()]}]
    for name in ("", "no such user", "\udcff", "\ud800", "a\0b"):
        with pytest.raises(QueryError, match="there is no such user"):
            query.user(name)


@pytest.mark.parametrize(
    ("filters", "clause"),
    [
        ([], {"states": [126]}),
        (["RUN,Sched"], {"states": [24]}),
        (["failed", "canceled"], {"results": [6]}),
        (["pending,timeout"], {"or": [{"states": [14]}, {"results": [8]}]}),
    ],
)
def test_states_and_results_are_alternatives(filters: list[str], clause: Any) -> None:
    query = Query(count=3, since=1.5)
    query.add("name", ["x"])
    for text in filters:
        query.filter(text)
    assert query.request(["id"]) == {
        "max_entries": 3,
        "attrs": ["id"],
        "since": 1.5,
        "constraint": {"and": [{"name": ["x"]}, clause]},
    }


@pytest.mark.parametrize(("text", "wrong"), [("bogus", "bogus"), ("", ""), ("run,", ""), ("run sched", "run sched")])
def test_what_is_no_state_is_named(text: str, wrong: str) -> None:
    with pytest.raises(QueryError, match=f"Invalid filter specified: {wrong}$"):
        Query().filter(text)


def test_an_unknown_job_is_none_and_any_other_error_is_raised() -> None:
    gone, broken = OSError(errno.ENOENT, "no such job"), OSError(errno.EPERM, "not yours")
    jobs = listing.list_ids(Answers({"job-list.list-id": [{"job": {"id": 7}}, gone, broken]}), [7, 8, 9], ["id"])
    first = next(jobs)
    assert first is not None and first.id == 7
    assert next(jobs) is None
    with pytest.raises(PermissionError):
        next(jobs)


def test_jobs_come_in_as_many_answers_as_there_are() -> None:
    broker = Answers({"job-list.list": [{"jobs": [{"id": 1}, {"id": 2}]}, {"jobs": []}, {"jobs": [{"id": 3}]}]})
    assert [job["id"] for job in listing.list_jobs(broker, Query(), ["id"])] == [1, 2, 3]
