"""What `flux jobs` shows of an instance that a job runs."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.wire.query import instance_info

STATS = {
    "job_states": {"depend": 1, "priority": 0, "sched": 2, "run": 3, "cleanup": 1, "inactive": 13, "total": 20},
    **{"successful": 8, "failed": 2, "canceled": 2, "timeout": 1},
}


def r(nodes: str, cores: str) -> dict[str, Any]:
    lite = [{"rank": nodes, "children": {"core": cores}}]
    return {"version": 1, "execution": {"R_lite": lite, "nodelist": [f"n[{nodes}]"], "starttime": 0, "expiration": 0}}


RESOURCES = {"all": r("0-3", "0-3"), "down": r("3", "0-3"), "allocated": r("0-1", "0-1")}


def job(**fields: Any) -> Any:
    return {"uri": "local:///run/flux/local", "state": "RUN", "userid": os.getuid(), **fields}


def given(**more: Any) -> dict[str, Any]:
    return {"job_list__job_stats": STATS, "resource__sched_status": RESOURCES, **more}


def test_jobs_and_resources_are_counted(answers: Any) -> None:
    answers(instance_info, **given())
    found = instance_info.ask(job())
    shown = {name.partition(".")[2]: value for name, value in found.items()}
    assert shown["stats"] == "PD:3 R:4 CD:8 F:5"
    assert (shown["stats.active"], shown["stats.inactive"], shown["progress"]) == (7, 13, 0.65)
    nodes = {part: shown[f"resources.{part}.nnodes"] for part in ("all", "up", "down", "allocated", "free")}
    assert nodes == {"all": 4, "up": 3, "down": 1, "allocated": 2, "free": 3}
    assert (shown["utilization"], shown.get("gpu_utilization")) == (0.25, None)
    assert set(found) <= {"instance.utilization", "instance.progress", *instance_info.HEADINGS}


@pytest.mark.parametrize("fields", [{"uri": ""}, {"state": "INACTIVE"}, {"userid": os.getuid() + 1}])
def test_only_an_instance_of_mine_that_runs_is_asked(answers: Any, fields: dict[str, Any]) -> None:
    broker = answers(instance_info, **given())
    assert instance_info.ask(job(**fields)) == {}
    assert broker.asked == []


def test_an_instance_that_does_not_answer_shows_nothing(answers: Any, monkeypatch: Any) -> None:
    gone = OSError(errno.ECONNRESET, "gone")
    answers(instance_info, **given(resource__sched_status=gone))
    assert instance_info.ask(job()) == {}
    monkeypatch.setattr(instance_info, "Handle", SimpleNamespace())
    monkeypatch.setattr(instance_info, "reachable", lambda _uri: (_ for _ in ()).throw(ValueError("no such scheme")))
    assert instance_info.ask(job()) == {}


def test_an_instance_that_had_no_job_yet_has_made_no_progress(answers: Any) -> None:
    none = {"job_states": dict.fromkeys(STATS["job_states"], 0), **dict.fromkeys(list(STATS)[1:], 0)}  # type: ignore[call-overload]
    answers(instance_info, **given(job_list__job_stats=none))
    assert instance_info.ask(job())["instance.progress"] == 0.0
