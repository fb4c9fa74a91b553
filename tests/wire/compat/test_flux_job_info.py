"""`flux.job.JobInfo`: what programs read of a job; no instance is needed."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.job import JobInfo
from flux.job.info import resulttoemoji, resulttostr, statetoemoji, statetostr, statustoemoji, statustostr

from headrace.wire.query import job_info as fields

RAW = {
    **{"id": 7, "state": 64, "result": 2, "nnodes": 2, "priority": 16, "waitstatus": 256, "nodelist": "n[0-1]"},
    **{"exception_occurred": True, "exception_type": "exec", "annotations": {"user": {"uri": "ssh://h/l"}}},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [("nnodes", 2), ("priority", 16), ("waitstatus", 256), ("nodelist", "n[0-1]"), ("state_id", 64), ("result_id", 2)],
)
def test_an_attribute_is_there_as_it_was_sent(name: str, value: object) -> None:
    assert getattr(JobInfo(RAW), f"_{name}") == value


@pytest.mark.parametrize(("name", "value"), [("nnodes", ""), ("t_run", 0.0), ("result_id", ""), ("dependencies", [])])
def test_one_that_was_not_sent_has_its_default(name: str, value: object) -> None:
    assert getattr(JobInfo({"id": 7}), f"_{name}") == value


def test_some_are_objects() -> None:
    job = JobInfo(RAW)
    assert (job._id.f58, job._exception.type, job._user.uri) == (job.id.f58, "exec", "ssh://h/l")
    assert job._annotations.user.uri == "ssh://h/l"


def test_an_exception_is_four_values_also_for_programs_that_take_all_of_them() -> None:
    """flux-restful-api makes JSON of `_exception.__dict__`."""
    told = {"occurred": True, "severity": "", "type": "exec", "note": ""}
    assert (JobInfo(RAW)._exception.__dict__, vars(JobInfo({"id": 7}).exception)["occurred"]) == (told, False)


def test_all_that_was_sent_is_in_the_dictionary_of_the_object() -> None:
    """flux-burst takes all attributes from `__dict__`, and those of exception and annotations."""
    told = JobInfo(RAW).__dict__
    assert {"_id", "_state_id", "_result_id", "_nnodes", "_t_run", "_sched", "_user"} <= told.keys()
    assert all(name.startswith("_") and name not in ("_state", "_result", "_info") for name in told)
    assert told["_exception"].__dict__["type"] == "exec"
    assert told["_annotations"].__dict__ == {"annotationsDict": RAW["annotations"]}


def test_an_annotation_that_is_missing_is_empty_however_deep() -> None:
    job = JobInfo(RAW)
    assert (str(job.user.a.b.c), f"{job.annotations.x.y:>3}", bool(job.sched.z), job.user.a) == ("", "   ", False, "")


def test_states_and_results_have_names() -> None:
    assert [statustostr(64, 1), statustostr(64, 1, "S"), statustostr(16, ""), statustostr(16, "", fmt="S")] == [
        *("COMPLETED", "CD", "RUN", "R"),
    ]
    assert (resulttostr(""), statetostr(stateid=8), resulttostr(resultid=2, fmt="S")) == ("", "SCHED", "F")
    assert statustoemoji(64, 1) == resulttoemoji(1) != statustoemoji(16, "") == statetoemoji(16)


@pytest.mark.parametrize("name", ["_nosuch", "_state", "_result", "__len__"])
def test_others_are_not_there(name: str) -> None:
    assert not hasattr(JobInfo({"id": 7}), name)
    assert copy.deepcopy(JobInfo(RAW))._nnodes == 2


@pytest.mark.parametrize("ask", [lambda job: job.nosuch, lambda job: job.exception.nosuch])
def test_what_is_no_attribute_is_an_error_as_programs_probe_for_it(ask: Any) -> None:
    with pytest.raises(AttributeError):
        ask(JobInfo(RAW))


def test_every_field_of_a_listing_is_an_attribute() -> None:
    job = JobInfo({"id": 1})
    for name in (*fields.DEFAULTS, *(name for name in fields.HEADINGS if "." not in name)):
        assert hasattr(job, name), name


def test_the_instance_of_a_job_that_runs_none_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobInfo(RAW)
    assert job.get_instance_info() is job and not job.instance
    told = {"instance.stats": "PD:1", "instance.stats.total": 4, "instance.resources.all.ncores": 8}
    monkeypatch.setattr("headrace.wire.query.instance_info.ask", lambda _job: told)
    job.get_instance_info()
    assert (job.instance.stats.total, job.instance.resources.all.ncores) == (4, 8)
