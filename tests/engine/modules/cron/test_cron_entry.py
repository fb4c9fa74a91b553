from __future__ import annotations

import pytest

from headrace.engine.modules.cron.entry import Entry

ASKED = {"type": "interval", "name": "n", "command": "c"}


def _run(entry: Entry, status: int = 0, errnum: int = 0) -> None:
    assert entry.create_task(1.0)
    assert entry.task is not None
    if errnum:
        entry.task.rexec_errno = errnum
    else:
        entry.task.times["start-time"] = 2.0
    entry.task.status = status
    entry.finish(3.0)


def test_a_task_is_made_only_when_the_last_one_has_ended():
    entry = Entry(1, ASKED, 0.0)
    assert entry.create_task(1.0) and not entry.create_task(2.0)
    assert entry.stats["total"] == 1


@pytest.mark.parametrize(
    ("status", "errnum", "state", "code"),
    [(0, 0, "Exited", 0), (256, 0, "Failed", 1), (15, 0, "Failed", 143), (0, 113, "Rexec Failure", 0)],
)
def test_a_task_tells_how_it_ended(status, errnum, state, code):
    entry = Entry(1, ASKED, 0.0)
    _run(entry, status, errnum)
    (task,) = entry.to_obj({})["tasks"]
    assert (task["state"], task["code"], task.get("rexec_errno", 0)) == (state, code, errnum)
    assert (entry.stats["success"], entry.stats["failure"]) == ((1, 0) if state == "Exited" else (0, 1))


def test_runs_and_failures_are_counted_from_the_last_start():
    entry = Entry(1, {**ASKED, "repeat": 2, "stop-on-failure": 2}, 0.0)
    entry.start(5.0)
    _run(entry)
    assert not entry.has_run_enough and not entry.has_failed_enough
    _run(entry, 256)
    assert entry.has_run_enough and not entry.has_failed_enough
    entry.start(6.0)
    assert not entry.has_run_enough
    _run(entry, 256)
    _run(entry, 256)
    assert entry.has_failed_enough
    assert (entry.stats["total"], entry.stats["failure"], entry.stats["starttime"]) == (4, 3, 6.0)


def test_the_history_has_the_last_tasks_newest_first():
    entry = Entry(1, {**ASKED, "task-history-count": 2}, 0.0)
    for status in (0, 256, 512):
        _run(entry, status)
    assert [task["code"] for task in entry.to_obj({})["tasks"]] == [2, 1]


def test_states_before_the_end():
    entry = Entry(1, {**ASKED, "timeout": 5.0}, 0.0)
    entry.create_task(1.0)
    assert entry.task is not None and entry.task.state == "Deferred"
    entry.task.times["start-time"] = 2.0
    assert entry.task.state == "Running"
    entry.task.timed_out = True
    entry.task.status = 15
    entry.finish(3.0)
    obj = entry.to_obj({"a": 1})
    assert obj["tasks"][0]["state"] == "Timeout"
    assert (obj["timeout"], obj["typedata"], obj["stopped"]) == (5.0, {"a": 1}, True)
