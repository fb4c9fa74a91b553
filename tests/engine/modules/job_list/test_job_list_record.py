"""A job's attributes from its recorded events, and what packing keeps of them."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_list.record import ATTRS, Job, Packer, summarize
from headrace.formats.spec.job_state import INACTIVE, PRIORITY, RUN, SCHED

# Events of a job that `flux run` started and canceled, as recorded from flux-core 0.88 (wire/43).
JOBSPEC: dict[str, Any] = {
    "version": 1,
    "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
    "tasks": [{"command": ["/bin/sleep", "100"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 0, "cwd": "/home/user"}},
}
EVENTS: list[tuple[float, str, dict[str, Any]]] = [
    (1795224527.8681123, "submit", {"userid": 0, "urgency": 16, "flags": 0, "version": 1}),
    (1795224527.8798597, "validate", {}),
    (1795224527.8909435, "depend", {}),
    (1795224527.891124, "priority", {"priority": 16}),
    (1795224527.898365, "alloc", {"annotations": {"sched": {"resource_summary": "rank1/core0"}}}),
    (1795224527.9, "start", {}),
    (1795224528.07, "exception", {"type": "cancel", "severity": 0, "note": "", "userid": 0}),
    (1795224528.0788796, "finish", {"status": 36608}),
    (1795224528.09, "release", {"ranks": "all", "final": True}),
    (1795224528.0921, "free", {}),
    (1795224528.092311, "clean", {}),
]
R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "1", "children": {"core": "0"}}],
        "nodelist": ["node0"],
        "expiration": 9223372036.0,
    },
}


def job(*events: tuple[float, str, dict[str, Any]], jobspec: dict[str, Any] = JOBSPEC, id: int = 65129152512) -> Job:
    made = Job(id)
    made.take_jobspec(summarize(jobspec))
    for time, name, context in events:
        made.take_event(time, name, context)
        if name == "alloc":
            made.take_r(R)
    return made


def spec(**system: Any) -> dict[str, Any]:
    return {**JOBSPEC, "attributes": {"system": {"duration": 0, **system}}}


def test_a_canceled_job_lists_as_recorded() -> None:
    assert job(*EVENTS).attributes() == {
        "id": 65129152512,
        "userid": 0,
        "urgency": 16,
        "priority": 16,
        "t_submit": 1795224527.8681123,
        "t_depend": 1795224527.8798597,
        "t_priority": 1795224527.8909435,
        "t_sched": 1795224527.891124,
        "t_run": 1795224527.898365,
        "t_cleanup": 1795224528.07,
        "t_inactive": 1795224528.092311,
        "state": 64,
        "name": "sleep",
        "cwd": "/home/user",
        "ntasks": 1,
        "ncores": 1,
        "duration": 0.0,
        "nnodes": 1,
        "ranks": "1",
        "nodelist": "node0",
        "success": False,
        "exception_occurred": True,
        "exception_type": "cancel",
        "exception_severity": 0,
        "exception_note": "",
        "result": 4,
        "expiration": 9223372036.0,
        "annotations": {"sched": {"resource_summary": "rank1/core0"}},
        "waitstatus": 36608,
    }


def test_only_what_was_asked_for_is_answered_and_always_the_id() -> None:
    done = job(*EVENTS)
    assert done.attributes(("queue",)) == {"id": done.id}
    assert list(done.attributes(("result", "name"))) == ["id", "result", "name"]


def test_the_outcome_is_told_only_at_the_end() -> None:
    shown = job(*EVENTS[:-1]).attributes()
    assert not {"success", "result", "exception_occurred", "exception_type"} & set(shown)
    assert shown["waitstatus"] == 36608


def outcome(*events: tuple[str, dict[str, Any]]) -> tuple[Any, ...]:
    made = job(*EVENTS[:6], *((2e9 + index, *event) for index, event in enumerate([*events, ("clean", {})])))
    return made.success, made.result, made.exception_occurred


def test_results_follow_exception_and_status() -> None:
    def exception(kind: str, severity: int = 0) -> tuple[str, dict[str, Any]]:
        return "exception", {"type": kind, "severity": severity, "note": "n"}

    assert outcome(("finish", {"status": 0})) == (True, 1, False)
    assert outcome(("finish", {"status": 256})) == (False, 2, False)
    assert outcome(exception("timeout"), ("finish", {"status": 36352})) == (False, 8, True)
    assert outcome(exception("cancel")) == (False, 4, True)
    assert outcome(exception("alloc")) == (False, 2, True)
    assert outcome(exception("test", 3), ("finish", {"status": 0})) == (True, 1, True)
    assert outcome(exception("test", 3), exception("cancel"), ("finish", {"status": 15})) == (False, 4, True)


def test_a_held_and_updated_job_shows_its_new_values() -> None:
    made = job(*EVENTS[:4], (5.0, "urgency", {"userid": 0, "urgency": 0}), jobspec=spec(queue="batch"))
    assert made.state == 4
    made.take_event(6.0, "priority", {"priority": 0})
    assert (made.state, made.priority, made.urgency) == (SCHED, 0, 0)
    made.take_event(7.0, "jobspec-update", {"attributes.system.duration": 660.0, "attributes.system.queue": "debug"})
    assert (made.duration, made.queue) == (660.0, "debug")
    running = job(*EVENTS[:6])
    running.take_event(8.0, "resource-update", {"expiration": 12.5})
    running.take_event(8.0, "jobspec-update", {"attributes.system.duration": 60})
    assert (running.state, running.expiration, running.duration) == (RUN, 12.5, 60.0)


def test_dependencies_come_and_go() -> None:
    made = job(*EVENTS[:2])
    made.take_event(3.0, "dependency-add", {"description": "after-success=ƒA"})
    made.take_event(3.0, "dependency-add", {"description": "begin-time=5.000"})
    assert made.attributes(("dependencies",))["dependencies"] == ["after-success=ƒA", "begin-time=5.000"]
    made.take_event(4.0, "dependency-remove", {"description": "after-success=ƒA"})
    assert made.dependencies == ["begin-time=5.000"]
    made.take_event(5.0, "dependency-remove", {"description": "begin-time=5.000"})
    assert "dependencies" not in made.attributes()


def test_memos_join_the_annotations() -> None:
    made = job(*EVENTS[:5])
    made.take_event(9.0, "memo", {"uri": "ssh://node0/x", "foo": 1})
    made.take_event(9.0, "memo", {"foo": None})
    assert made.annotations == {"sched": {"resource_summary": "rank1/core0"}, "user": {"uri": "ssh://node0/x"}}
    made.take_event(9.0, "annotations", {"annotations": None})
    assert made.annotations is None


def test_whole_nodes_have_cores_once_they_are_known() -> None:
    slot = JOBSPEC["resources"][0]
    nodes = {"type": "node", "count": 2, "exclusive": True, "with": [slot]}
    shell = {"options": {"per-resource": {"type": "core", "count": 2}}}
    made = job(*EVENTS[:4], jobspec={**spec(shell=shell), "resources": [nodes]})
    assert made.attributes(("ncores", "nnodes")) == {"id": made.id, "nnodes": 2}
    wide = {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}], "nodelist": ["node[0-1]"], "expiration": 0.0}
    made.take_r({"version": 1, "execution": wide})
    assert (made.ncores, made.nnodes, made.ranks, made.nodelist) == (8, 2, "[0-1]", "node[0-1]")
    assert made.ntasks == 16


def test_a_finished_job_is_small() -> None:
    packer = Packer()
    packer.pack(job(*EVENTS))
    assert sys.getsizeof(packer.pack(job(*EVENTS))) < 210


TEXT = st.none() | st.text(max_size=30)
TIME = st.none() | st.floats(0, 1e12, allow_nan=False)


@given(
    st.fixed_dictionaries(
        {
            "name": TEXT,
            "cwd": TEXT,
            "queue": TEXT,
            "bank": TEXT,
            "nodelist": TEXT,
            "exception_note": TEXT,
            "t_run": TIME,
            "t_inactive": TIME,
            "waitstatus": st.none() | st.integers(0, 65535),
            "priority": st.none() | st.integers(0, 2**32 - 1),
            "success": st.none() | st.booleans(),
            "annotations": st.none()
            | st.just({"sched": {"resource_summary": "rank0/core0"}})
            | st.just({"sched": {"resource_summary": "r", "t_estimate": 1.5}, "user": {"a": [1]}}),
        }
    )
)
def test_packing_keeps_every_attribute(values: dict[str, Any]) -> None:
    made = job(*EVENTS)
    for name, value in values.items():
        setattr(made, name, value)
    packer = Packer()
    again = packer.unpack(made.id, packer.pack(made))
    assert again.state == INACTIVE
    assert [getattr(again, name) for name in ATTRS] == [getattr(made, name) for name in ATTRS]
    assert msgspec.json.encode(again.attributes()) == msgspec.json.encode(made.attributes())


def test_a_job_that_is_queued_again_has_no_nodes_until_it_runs_again() -> None:
    for name in ("requeue", "flux-restart"):
        noted = job(*EVENTS[:6], (2.0, "memo", {"a": "b"}), (1795224529.0, name, {"requeue": True}))
        assert noted.annotations == {"user": {"a": "b"}}
        again = job(*EVENTS[:6], (1795224529.0, name, {"requeue": True}))
        assert (again.state, again.nodelist, again.t_run, again.annotations) == (PRIORITY, None, None, None)
        for event in ((1795224530.0, "priority", {"priority": 16}), (1795224531.0, "alloc", {})):
            again.take_event(*event)
        assert (again.state, again.t_run) == (RUN, 1795224531.0)
    assert job(*EVENTS[:6], (1795224529.0, "flux-restart", {})).state == RUN


def test_waiting_jobs_share_their_name_and_keep_no_jobspec_that_says_nothing_more() -> None:
    first = summarize(JOBSPEC)
    other = summarize({**JOBSPEC, "tasks": [{**JOBSPEC["tasks"][0], "command": ["/bin/sleep", "7"]}]}, first)
    assert other.name is first.name == "sleep"
    assert job(*EVENTS[:2]).jobspec is None
    per_resource = spec(shell={"options": {"per-resource": {"type": "core", "count": 2}}})
    waiting = job(*EVENTS[:2], jobspec=per_resource)
    assert waiting.jobspec is per_resource
    waiting.take_r(R)
    assert waiting.ntasks == 2
