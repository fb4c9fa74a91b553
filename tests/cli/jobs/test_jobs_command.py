"""`flux jobs`: the order of jobs, also of those in instances."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.jobs import main as jobs
from scripted import Answers

RUN = 16


def listed(*names: str) -> list[dict[str, Any]]:
    found = [{"id": n, "name": name, "state": RUN, "userid": 0} for n, name in enumerate(names, 1)]
    return [{"jobs": [{**job, "annotations": {"user": {"uri": f"local:///{job['name']}"}}} for job in found]}]


def names(objects: list[dict[str, Any]]) -> list[Any]:
    return [(one["name"], names(one["jobs"])) if "jobs" in one else one["name"] for one in objects]


@pytest.mark.parametrize(
    ("sort", "order"),
    [("name", [("a", ["x", "y"]), ("b", ["x", "y"])]), ("-name", [("b", ["y", "x"]), ("a", ["y", "x"])])],
)
def test_jobs_of_instances_are_sorted_as_their_own_in_json(
    sort: str, order: list[Any], answers: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(jobs, {"job-list.list": listed("b", "a")})
    inner = iter([Answers({"job-list.list": listed("y", "x")}) for _ in range(2)])
    monkeypatch.setattr(jobs, "_open_instance", lambda *_args: next(inner))
    assert jobs.main(["-R", "-L1", "--json", f"--sort={sort}"]) == 0
    assert names(json.loads(capsys.readouterr().out)["jobs"]) == order


@pytest.mark.parametrize(
    ("hosts", "why"),
    [("host:[", "-i 'host:[': hostlist 'host:['"), ("3-1", "-i '3-1': idset '3-1'")],
)
def test_hosts_and_ranks_that_are_none_are_refused_before_the_broker_is_asked(
    hosts: str, why: str, answers: Any
) -> None:
    given = answers(jobs)
    with pytest.raises(CommandError) as caught:
        jobs.main(["-i", hosts])
    assert str(caught.value).startswith(why) and not given.asked
