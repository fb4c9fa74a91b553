"""What events make of a job, and the values that are laid on top of others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.jobs import record
from headrace.engine.jobs.record import Job, merged, noted, updated_jobspec, updated_r
from headrace.formats.spec.job_state import CANCELED, COMPLETED, FAILED, TIMEOUT

JOBSPEC = {"version": 1, "attributes": {"system": {"duration": 0, "queue": "batch"}}}
keys = st.sampled_from("abc")
plain = st.recursive(
    st.integers(0, 3) | st.text("xy", max_size=1),
    lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3),
    max_leaves=5,
)
tables = st.dictionaries(keys, plain, max_size=3)
changes = st.dictionaries(
    keys,
    st.recursive(st.none() | st.integers(0, 3), lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=5),
    max_size=3,
)


def job(*events: tuple[str, Any]) -> Job:
    made = Job(1, copy.deepcopy(JOBSPEC))
    for time, (name, context) in enumerate(events, 1):
        made.apply((float(time), name, context))
    return made


@given(tables, changes)
def test_a_change_laid_on_top_wins_once_and_for_all(old: dict[str, Any], change: dict[str, Any]) -> None:
    before = copy.deepcopy((old, change))
    new = merged(old, change)
    assert (old, change) == before
    assert merged(new, change) == new
    for key, value in change.items():
        if value is None:
            assert key not in new
        elif not isinstance(value, dict):
            assert new[key] == value
    assert {key: new.get(key) for key in old if key not in change} == {k: v for k, v in old.items() if k not in change}
    assert not any(value == {} for key, value in new.items() if key in change), "an empty table is none"


@given(tables, changes, changes)
def test_memos_are_merged_also_where_jobs_share_them(old: dict[str, Any], first: Any, second: Any) -> None:
    for before in (None, {"user": old}, {"user": old, "sched": {"a": 1}}, {"user": {}}):
        for memo in (first, first, second, first):
            expected = merged(before or {}, {"user": memo})
            assert noted(before, memo) == expected
            assert noted(copy.deepcopy(before), memo) == expected
    one, other = noted({"user": {"a": 1}}, first), noted({"user": {"a": 2}}, first)
    assert (one is other) == (first.keys() >= {"a"} and not any(isinstance(value, dict) for value in first.values()))


@given(st.dictionaries(st.lists(keys, min_size=1, max_size=3).map(".".join), st.integers(0, 3) | st.none(), max_size=4))
def test_updates_by_path_set_what_they_name_and_change_nothing_that_was_shared(updates: dict[str, Any]) -> None:
    jobspec = {"a": {"b": {"c": 1}, "x": 2}, "z": [1]}
    before = copy.deepcopy(jobspec)
    after = updated_jobspec(jobspec, updates)
    assert jobspec == before
    assert after["z"] is jobspec["z"]
    path, value = list(updates.items())[-1] if updates else ("z", [1])
    here: Any = after
    for name in path.split("."):
        here = here.get(name)
        if here is None:
            break
    assert here == value


def test_an_update_of_r_keeps_the_rest_of_it() -> None:
    r = {"version": 1, "execution": {"R_lite": [], "expiration": 0.0}}
    assert updated_r(r, {"expiration": 5.0})["execution"] == {"R_lite": [], "expiration": 5.0}
    assert r["execution"] == {"R_lite": [], "expiration": 0.0}


@pytest.mark.parametrize(
    ("fatal", "status", "text", "result"),
    [
        (("cancel", ""), None, "Fatal exception type=cancel", CANCELED),
        (("timeout", "too long"), 0, "Fatal exception type=timeout too long", TIMEOUT),
        (("exec", "lost"), 0, "Fatal exception type=exec lost", FAILED),
        (None, None, "job did not run", FAILED),
        (None, 0, "", COMPLETED),
        (None, 9, "job shell Killed", FAILED),
        (None, 3 << 8, "task(s) exited with exit code 3", FAILED),
        (None, 143 << 8, "task(s) Terminated", FAILED),
        (None, 255 << 8, "task(s) died by signal 127", FAILED),
        (None, 128 << 8, "task(s) exited with exit code 128", FAILED),
    ],
)
def test_why_a_job_failed(fatal: tuple[str, str] | None, status: int | None, text: str, result: int) -> None:
    ended = job(("submit", {"userid": 5, "urgency": 16, "flags": 0}))
    ended.fatal, ended.status = fatal, status
    assert record.failure_text(ended) == text
    assert ended.result == result


@given(
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([None, "cancel", "timeout", "exec"]),
    st.sampled_from([None, 0, 256]),
    st.floats(0, 253_402_300_799.0),
)
def test_a_number_holds_what_is_kept_of_an_ended_job(
    userid: int, started: bool, fatal: str | None, status: int | None, end: float
) -> None:
    ended = job(("submit", {"userid": userid, "urgency": 16, "flags": 0}))
    ended.started, ended.status = started, status
    ended.fatal = None if fatal is None else (fatal, "")
    ended.apply((end, "clean", None))
    known = record.summary(ended)
    assert record.inactive_user(known) == userid
    assert record.inactive_started(known) == started
    assert record.inactive_excepted(known) == (fatal is not None)
    assert record.inactive_result(known) == ended.result
    assert abs(record.inactive_since(known) - end) <= 0.001


def test_a_requeued_job_waits_anew_and_one_that_only_waited_goes_on() -> None:
    life: list[tuple[str, Any]] = [
        ("submit", {"userid": 0, "urgency": 16, "flags": 0}),
        ("validate", None),
        ("depend", None),
    ]
    life += [("priority", {"priority": 16}), ("alloc", {"annotations": {"sched": {}}}), ("start", None)]
    again = job(*life, ("flux-restart", {"requeue": True}))
    assert (again.state, again.has_resources, again.started, again.annotations) == (record.PRIORITY, False, False, None)
    lost = job(*life, ("free", None), ("requeue", {"reason": "node-failure"}))
    assert (lost.state, lost.r, lost.started) == (record.PRIORITY, None, False)
    waits = job(*life[:4], ("flux-restart", None))
    assert waits.state == record.PRIORITY
    assert job(*life, ("flux-restart", None)).state == record.RUN


def test_a_requeued_job_keeps_what_its_user_noted() -> None:
    note = {"a": "b", "uri": "ssh://n0/run/flux/local"}
    noted = ("alloc", {"annotations": {"sched": {}}}), ("memo", note)
    life = [("submit", {"userid": 0, "urgency": 16, "flags": 0}), ("validate", None), ("depend", None)]
    life += [("priority", {"priority": 16}), *noted]
    assert job(*life, ("requeue", None)).annotations == {"user": {"a": "b"}}
    assert record.users_own({"user": {"uri": "x"}, "sched": {}}) is None


def test_the_first_fatal_exception_is_the_jobs() -> None:
    first = {"type": "exec", "severity": 0, "note": "one"}
    ended = job(
        ("exception", {"type": "x", "severity": 1}), ("exception", first), ("exception", {**first, "note": "two"})
    )
    assert (ended.fatal, ended.state) == (("exec", "one"), record.CLEANUP)


def test_counted_events_never_go_below_nothing() -> None:
    odd = job(("prolog-finish", None), ("epilog-finish", None), ("prolog-start", None), ("unknown", {"x": 1}))
    assert (odd.prologs, odd.epilogs, len(odd.events)) == (1, 0, 4)


@pytest.mark.parametrize("again", [("requeue", None), ("flux-restart", {"requeue": True})])
def test_updates_of_resources_that_a_job_has_lost_are_not_those_of_its_next(again: tuple[str, Any]) -> None:
    r = {"version": 1, "execution": {"R_lite": [], "expiration": 100.0}}
    first, other = ("resource-update", {"expiration": 50.0}), ("resource-update", {"expiration": 200.0})

    def expiration(*events: tuple[str, Any]) -> Any:
        return record.current_r(r, [(1.0, name, context) for name, context in events])["execution"]["expiration"]

    assert expiration() == 100.0
    assert expiration(first) == 50.0
    assert expiration(first, other) == 200.0
    assert expiration(first, again) == 100.0
    assert expiration(first, again, other) == 200.0
    assert expiration(first, ("flux-restart", None)) == 50.0
