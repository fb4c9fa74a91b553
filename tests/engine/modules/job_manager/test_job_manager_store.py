"""The job store: what is looked up of a job is the same before and after its end, and gone when it is purged."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.jobs.pack import Submission
from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager import store as jobs_store
from headrace.engine.modules.job_manager.store import Store

SPEC = {"version": 1, "attributes": {"system": {"duration": 0, "environment": {"SECRET": "s"}}}}
R: dict[str, Any] = {"version": 1, "execution": {"R_lite": [], "expiration": 0.0}}
KEYS = ("J", "R", "eventlog", "jobspec", "guest.output", "guest.input", "nonsense")


def job_in(store: Store, id: int, *events: tuple[str, Any], spec: Any = SPEC) -> Job:
    job = Job(id, spec)
    text = json.dumps(spec).encode()
    first, second = store.texts.encode(text)
    store.add(job, Submission(b"head", first, b"tail", {}, second))
    for name, context in [("submit", {"userid": 7, "urgency": 16, "flags": 0}), *events]:
        job.apply((1.0 + len(job.events), name, context))
    job.shown = len(job.events)
    return job


def seen(store: Store, id: int) -> dict[str, Any]:
    """All that can be looked up of a job."""
    found: dict[str, Any] = {"keys": store.keys(id), "owner": store.owner(id), "names": sorted(store.guest_names(id))}
    found.update(jobspec=store.jobspec(id, True), R=store.r(id, True))
    for key in KEYS:
        try:
            found[f"{key} as text"] = store.lookup(id, key)
        except KeyError:
            found[f"{key} as text"] = None
    return found


@given(
    st.lists(st.sampled_from(["R", "longer", "update", "out", "much", "in"]), max_size=6),
    st.booleans(),
)
def test_a_job_that_ended_is_looked_up_as_before(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], reload: bool
) -> None:
    store = Store(str(tmp_path_factory.mktemp("store")))
    job = job_in(store, 5)
    # R is as the scheduler gave it only until it changes: an active job has the current one.
    for step in steps:
        if step == "R":
            job.r = R
        elif step == "longer":
            job.apply((9.0, "jobspec-update", {"attributes.system.duration": 60}))
        elif step == "update" and job.r is None:
            job.apply((9.5, "memo", {"x": "é"}))
        elif step in ("out", "much"):
            line = b'{"timestamp":1.0,"name":"data","context":{"data":"' + b"x" * (40_000 if step == "much" else 3)
            store.log(5, "guest.output").append(line + b'"}}\n')
        elif step == "in":
            store.log(5, "guest.input").append(b'{"timestamp":1.0,"name":"data"}\n')
    job.shown = len(job.events)
    before = seen(store, 5)
    assert "SECRET" not in before["jobspec as text"] + str(before["jobspec"])
    assert before["jobspec"]["attributes"]["system"]["duration"] == (60 if "longer" in steps else 0)
    if reload:
        record = store.packed(job)
        other = Store(store.folder)
        other.texts.table = list(store.texts.table)
        other.restore(5, record)
        store.spill.close()
        store = other
    else:
        store.finish(job)
    assert seen(store, 5) == before
    assert (5 in store, 6 in store, store.active) == (True, False, {})
    store.spill.close()


def test_a_purged_job_leaves_neither_data_nor_files(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for id in (5, 6):
        job = job_in(store, id)
        store.log(id, "guest.output").append(b"x" * 200_000 + b"\n")
        store.finish(job)
    assert len(os.listdir(tmp_path / "output")) == 2
    assert store.record(5) is not None
    store.forget([5, 5, 77])
    assert len(os.listdir(tmp_path / "output")) == 1
    assert 5 not in store
    with pytest.raises(KeyError):
        store.lookup(5, "eventlog")
    assert len(store.lookup(6, "guest.output")) == 200_001


def test_events_that_are_not_durable_are_not_shown(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    job = job_in(store, 5, ("validate", None))
    job.shown = 1
    assert [name for _, name, _ in store.events(5)] == ["submit"]
    assert store.lookup(5, "eventlog").count("\n") == 1


def test_a_log_that_is_too_long_for_one_answer_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_store, "MOST_TEXT", 100)
    store = Store(str(tmp_path))
    job_in(store, 5)
    store.log(5, "guest.output").append(b"x" * 100 + b"\n")
    with pytest.raises(OSError, match="watch it instead") as caught:
        store.lookup(5, "guest.output")
    assert caught.value.errno == errno.EFBIG


def test_without_room_for_a_file_the_record_has_the_log(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    job = job_in(store, 5)
    (tmp_path / "output").write_text("in the way of a folder")
    store.log(5, "guest.output").append(b"x" * 200_000 + b"\n")
    store.finish(job)
    assert len(store.lookup(5, "guest.output")) == 200_001


def test_what_is_partly_in_a_file_that_cannot_grow_is_kept_in_both_places(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    job = job_in(store, 5)
    store.append(5, "guest.output", b"x" * 100_000 + b"\n")
    store.append(5, "guest.output", b"y" * 100 + b"\n")
    (tmp_path / "output").rename(tmp_path / "away")
    record = store.packed(job)
    (tmp_path / "away").rename(tmp_path / "output")
    store.restore(5, record)
    del store.active[5]
    assert store.lookup(5, "guest.output") == "x" * 100_000 + "\n" + "y" * 100 + "\n"
    store.forget([5])
    assert os.listdir(tmp_path / "output") == []


def test_a_short_record_tells_of_the_output_that_has_no_room(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    store = Store(str(tmp_path), lambda id, why: told.append((id, why)))
    for id in (5, 6):
        job = job_in(store, id)
        store.append(id, "guest.exec.eventlog", b"e" * 1000 + b"\n")
        store.append(id, "guest.output", b'{"name":"header"}\n' + b"x" * 1000 + b"\n")
        store.append(id, "guest.input", b"short\n")
        (tmp_path / "output").write_text("in the way of a folder")
        assert store.size_of_logs(id) == 1001 + 1019 + 6
        store.saved_logs(id, short=True)
        store.finish(job)
        assert store.lookup(id, "guest.exec.eventlog") == "e" * 1000 + "\n"
        assert store.lookup(id, "guest.input") == "short\n"
        header, note = map(json.loads, store.lookup(id, "guest.output").splitlines())
        assert (header, note["name"]) == ({"name": "header"}, "log")
        assert note["context"]["message"] == f"output is lost: {tmp_path}: File exists"
    assert told == [(id, f"output is lost: {tmp_path}: File exists") for id in (5, 6)]


def test_entries_of_users_stand_in_the_main_eventlog_by_time_and_change_nothing_else(tmp_path: Path) -> None:
    def names() -> list[str]:
        return [json.loads(line)["name"] for line in store.lookup(5, "eventlog").splitlines()]

    store = Store(str(tmp_path))
    job = job_in(store, 5, ("validate", None), ("clean", None))
    for time, name in ((2.0, "a"), (0.5, "b"), (9.0, "exception")):
        store.append_to_any(5, "eventlog", json.dumps({"timestamp": time, "name": name}).encode() + b"\n")
    expected = ["submit", "validate", "a", "b", "clean", "exception"]
    assert names() == expected
    store.finish(job)
    store.append_to_any(5, "eventlog", b'{"timestamp":3,"name":"c"}\n')
    assert names() == [*expected, "c"]
    assert [name for _, name, _ in store.events(5)] == ["submit", "validate", "clean"]
    assert store.keys(5) == ["J", "eventlog", "jobspec"]
