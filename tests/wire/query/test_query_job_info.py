from __future__ import annotations

import time

import pytest

from headrace.cli.job.attach import ending
from headrace.formats.spec import jobid
from headrace.wire.query.job_info import HEADINGS, JobInfo, attributes_for, exit_reason

NOW = 1000.0


def job(**raw: object) -> JobInfo:
    return JobInfo({"id": 45332037632, **raw}, NOW)


def test_every_heading_has_a_value_for_a_bare_job():
    bare = job(state=8)
    for name in HEADINGS:
        if name not in ("id.words", "id.emoji"):
            bare.get(name)


def test_status_is_the_state_until_there_is_a_result():
    assert [job(state=state).get("status_abbrev") for state in (2, 4, 8, 16, 32)] == ["D", "P", "S", "R", "C"]
    ends = [job(state=64, result=result).get("status_abbrev") for result in (1, 2, 4, 8)]
    assert ends == ["CD", "F", "CA", "TO"]
    assert job(state=64, result=4).get("status") == "CANCELED"


@pytest.mark.parametrize("code", range(1, 256))
def test_every_exit_status_has_a_reason_and_an_ending(code):
    assert exit_reason(code << 8)
    assert ending(code << 8).startswith("task(s) ")


def test_a_status_over_128_is_a_signal_also_where_there_is_none_of_the_number():
    assert [exit_reason(code << 8) for code in (129, 255)] == ["Hangup", "Unknown signal 127"]
    assert ending(255 << 8) == "task(s) Unknown signal 127"


def test_time_is_the_request_while_pending_and_the_run_time_after():
    assert job(state=8, duration=120.0).get("contextual_time") == 120.0
    assert job(state=16, t_run=990.0, duration=120.0).get("contextual_time") == 10.0
    assert job(state=64, t_run=990.0, t_cleanup=995.0, result=1).get("contextual_time") == 5.0
    assert job(state=64, result=2).get("contextual_time") == 0.0


@pytest.mark.parametrize(
    ("raw", "info"),
    [
        ({"state": 2, "dependencies": ["after-success=ƒ2"]}, "depends:after-success=ƒ2"),
        ({"state": 4}, "priority-wait"),
        ({"state": 8, "urgency": 0, "priority": 0}, "held"),
        ({"state": 8, "urgency": 16, "priority": 0}, "priority-hold"),
        ({"state": 8, "urgency": 16, "priority": 16}, ""),
        ({"state": 8, "priority": 16, "annotations": {"sched": {"reason_pending": "2 nodes short"}}}, "2 nodes short"),
        ({"state": 8, "priority": 16, "annotations": {"sched": {"t_estimate": 990.0}}}, "eta:now"),
        (
            {"state": 8, "priority": 16, "annotations": {"sched": {"reason_pending": "short", "t_estimate": 1300.0}}},
            "eta:5m",
        ),
        ({"state": 2, "dependencies": ["begin-time=1" + "0" * 300 + ".000"]}, "depends:begin@1e+300"),
        ({"state": 2, "dependencies": ["begin-time=8639999999999913600.000"]}, "depends:begin@8.64e+18"),
        ({"state": 16, "nodelist": "node[0-1]"}, "node[0-1]"),
    ],
)
def test_info_says_why_a_job_waits_or_where_it_runs(raw, info):
    assert job(**raw).get("contextual_info") == info


@pytest.mark.parametrize(
    ("ahead", "clock", "shown"),
    [(0, (6, 37, 19), "06:37:19"), (0, (20, 0, 0), "20:00"), (1, (20, 0, 0), "-20:00"), (1, (8, 0, 21), "-08:00:21")],
)
def test_a_begin_time_has_its_date_unless_it_is_today_and_its_seconds_if_there_are_any(ahead, clock, shown):
    day = time.localtime(job().now + 86400 * ahead)
    when = time.mktime((*day[:3], *clock, 0, 0, -1))
    if ahead:
        shown = time.strftime("%b%d", day) + shown
    assert job(state=2, dependencies=[f"begin-time={when:.3f}"]).get("contextual_info") == f"depends:begin@{shown}"


@pytest.mark.parametrize(
    ("raw", "reason", "code"),
    [
        ({"result": 1, "waitstatus": 0}, "Exit 0", 0),
        ({"result": 2, "waitstatus": 256}, "Exit 1", 1),
        ({"result": 2, "waitstatus": 127 << 8}, "command not found", 127),
        ({"result": 2, "waitstatus": 129 << 8}, "Hangup", 129),
        ({"result": 8, "waitstatus": 142 << 8}, "Timeout", 142),
        ({"result": 4, "exception_type": "cancel", "exception_note": "cleanup"}, "Canceled: cleanup", -128),
        ({"result": 4, "exception_type": "cancel", "exception_note": "", "waitstatus": 36608}, "Canceled", 143),
        (
            {"result": 2, "exception_occurred": True, "exception_type": "alloc", "exception_note": "no room"},
            "Exception: type=alloc note=no room",
            1,
        ),
    ],
)
def test_reason_and_return_code_of_the_end(raw, reason, code):
    ended = job(state=64, **raw)
    assert ended.get("inactive_reason") == reason
    assert ended.get("returncode") == code


def test_attributes_asked_for_are_those_the_fields_need():
    assert attributes_for(["id.f58", "name", "status_abbrev"]) == ["name", "state", "result"]
    assert attributes_for(["sched.reason_pending", "exception.note"]) == ["annotations", "exception_note"]


def test_json_leaves_out_what_is_unset():
    found = job(state=8, userid=0, name="next").to_dict()
    assert found["state"] == "SCHED"
    assert found["exception"] == {"occurred": False}
    assert "returncode" not in found
    assert "runtime" not in found


def test_ids_that_others_wrote_have_the_letter_that_ids_are_shown_with(monkeypatch):
    noted = job(
        state=64,
        result=2,
        exception_occurred=True,
        exception_severity=0,
        exception_type="dependency",
        exception_note="dependency: afterok: job \u0192Zu34go failed or was canceled",
        dependencies=["after-success=\u01923z"],
        annotations={"user": {"parent": "\u01923z"}},
    )
    fields = ("exception.note", "dependencies", "user.parent", "inactive_reason")
    assert all("\u0192" in noted.get(name) for name in fields)
    monkeypatch.setattr(jobid, "_f58_prefix", "f")
    assert noted.get("exception.note") == "dependency: afterok: job fZu34go failed or was canceled"
    assert (noted.get("dependencies"), noted.get("user.parent")) == ("after-success=f3z", "f3z")
    assert "job fZu34go failed" in noted.get("inactive_reason")
