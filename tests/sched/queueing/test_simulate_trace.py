"""Traces: both formats, what is left out, and what a bad line is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import jobid
from headrace.sched.queueing.simulate_trace import Fault, read, synthetic

HEAD = "; MaxNodes: 2\n; MaxProcs: 8\n;\n; a note\n"


def swf_line(job: int, **fields: Any) -> str:
    names = "submit wait run allocated cpu memory processors limit asked status user group exe queue part before think"
    given = {"submit": 0, "run": 60, "processors": 4, "status": 1, **fields}
    return " ".join([str(job), *(str(given.get(name, -1)) for name in names.split())])


def json_line(**fields: Any) -> str:
    slot = {"type": "slot", "count": 2, "label": "task", "with": [{"type": "core", "count": 3}]}
    jobspec = {"version": 1, "resources": [slot], "attributes": {"system": {"duration": 90.5}}}
    return json.dumps({"id": 5, "jobspec": jobspec, "submit": 1700000000.9, "runtime": 59.2, **fields})


def test_a_workload_line_becomes_a_request_for_cores() -> None:
    trace = read([HEAD, *HEAD.splitlines(), swf_line(1, submit=5.9, run=60.1, limit=100, user=3)])
    ((job),) = trace.jobs
    assert (job.id, job.submit, job.runtime, job.request.duration, job.user) == (1, 5, 61, 100, "3")
    ((slot),) = job.request.resources
    assert (slot.type, slot.count.low, slot.with_[0].type, slot.with_[0].count.low) == ("slot", 4, "core", 1)
    assert trace.header == {"MaxNodes": "2", "MaxProcs": "8"}
    assert not trace.faults


def test_a_processor_can_stand_for_a_node() -> None:
    ((request),) = read([swf_line(1)], unit="node").jobs[0].request.resources
    assert (request.type, request.count.low, request.exclusive) == ("node", 4, True)


def test_what_is_unknown_is_taken_from_what_is_known() -> None:
    jobs = read([swf_line(1, processors=-1, allocated=3), swf_line(2, run=0), swf_line(3, limit=0)]).jobs
    assert jobs[0].request.resources[0].count.low == 3
    assert [(job.runtime, job.request.duration) for job in jobs] == [(60, 60), (1, 1), (60, 60)]
    assert jobs[0].user == ""


def test_lines_that_stand_for_no_job_of_their_own_are_counted() -> None:
    trace = read([swf_line(1, status=2), swf_line(1, status=5, run=-1), swf_line(2, run=-1), swf_line(3, status=5)])
    assert [job.id for job in trace.jobs] == [3]
    assert trace.skipped == {
        "part of a job that has a line of its own": 1,
        "cancelled before it ran": 1,
        "its run time is not known": 1,
    }


def test_a_bad_line_is_named_and_costs_itself_only() -> None:
    lines = [HEAD.strip(), swf_line(1), "", swf_line(2, run="x"), "1 2 3", swf_line(1), swf_line(4, processors=0)]
    trace = read([*lines, swf_line(9)])
    assert [job.id for job in trace.jobs] == [1, 9]
    assert trace.faults == [
        Fault(4, "field 4 (run time): must be a number, not 'x'"),
        Fault(5, "a job has 18 fields, this line has 3"),
        Fault(6, "job id: 1 is already that of line 2"),
        Fault(7, "field 8 (requested processors): must be known, or else field 5 (allocated processors): neither says"
              " how many"),
    ]  # fmt: skip


def test_a_json_line_carries_a_jobspec() -> None:
    ((job),) = read([json_line(urgency=20, user="eve", other=[1])]).jobs
    assert (job.id, job.submit, job.runtime, job.request.duration) == (5, 1700000000, 60, 91)
    assert (job.urgency, job.user) == (20, "eve")
    assert job.request.resources[0].with_[0].count.low == 3


def test_an_id_may_have_any_form() -> None:
    assert read([json_line(id=jobid.encode(77))]).jobs[0].id == 77


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (json_line(runtime="1h"), "runtime: must be a number of seconds from 0 to 10^15, not '1h'"),
        (json_line(submit=-1), "submit: must be a number of seconds from 0 to 10^15, not -1"),
        (json_line(submit=True), "submit: must be a number of seconds from 0 to 10^15, not True"),
        (json_line(runtime=float("nan")), "runtime: must be a number of seconds from 0 to 10^15, not nan"),
        (json_line(urgency=32), "urgency: must be an integer from 0 to 31, not 32"),
        (json_line(user=[]), "user: must be a name or a number, not []"),
        (json_line(id="?"), "id: must be a job id, not '?'"),
        (json_line(id=-1), "id: must be a job id, not -1"),
        (json_line(jobspec=[]), "jobspec: jobspec: must be a mapping"),
        (json_line(jobspec={"resources": []}), "jobspec: resources: must be a list of at least one resource"),
        (json_line(jobspec={"attributes": 1}), "jobspec: attributes: must be an object"),
        (json_line(jobspec={"attributes": {"system": 1}}), "jobspec: attributes.system: must be an object"),
        ('{"id": 1}', "jobspec: missing"),
        ('{"id": ', "not JSON: Expecting value: line 1 column 7 (char 6)"),
        ("[1]", "must be an object"),
    ],
)
def test_a_bad_json_line_is_told_its_field_and_rule(line: str, rule: str) -> None:
    trace = read([json_line(id=1), line])
    assert trace.faults == [Fault(2, rule)]
    assert len(trace.jobs) == 1


def test_no_more_jobs_are_read_than_asked_for() -> None:
    assert [job.id for job in read([swf_line(1), "bad", swf_line(3), "worse"], limit=2).jobs] == [1, 3]


def test_an_empty_trace_has_no_jobs() -> None:
    assert read(["", "  "]).jobs == []


@given(st.lists(st.one_of(st.text(max_size=40), st.just(json_line()), st.just(swf_line(1))), max_size=6))
def test_every_line_is_a_job_or_left_out_or_reported(lines: list[str]) -> None:
    trace = read(lines)
    comments = sum(line.strip().startswith(";") for line in lines)
    filled = sum(bool(line.strip()) for line in lines)
    assert len(trace.jobs) + len(trace.faults) + sum(trace.skipped.values()) in (filled, filled - comments)


def test_made_up_jobs_depend_on_the_seed_alone() -> None:
    lines = list(synthetic(200, 1, 64))
    assert lines == list(synthetic(200, 1, 64))
    assert lines != list(synthetic(200, 2, 64))
    trace = read(lines)
    assert (len(trace.jobs), trace.faults, trace.header["MaxProcs"]) == (200, [], "64")
    work = sum(job.request.resources[0].count.low * job.runtime for job in trace.jobs)
    assert 0.8 < work / (64 * trace.jobs[-1].submit) < 1.2
    assert all(job.runtime <= job.request.duration for job in trace.jobs)


def test_a_machine_of_one_processor_gets_jobs_it_can_run() -> None:
    assert {job.request.resources[0].count.low for job in read(synthetic(50, 0, 1)).jobs} == {1}
