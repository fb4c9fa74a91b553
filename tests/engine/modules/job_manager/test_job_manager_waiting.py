"""Jobs that wait for jobs: any graph of dependencies ends as its edges say, in whatever order jobs end."""

from __future__ import annotations

from typing import Any

import pytest
from core_world import World, after
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.jobs.record import inactive_started
from headrace.engine.modules.job_manager import dependencies as deps
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import CANCELED, COMPLETED, DEPEND, FAILED, SCHED
from headrace.formats.spec.requests.sched import AllocResponse

SCHEMES = ["after", "afterany", "afterok", "afternotok", "afterexcept"]


@st.composite
def graphs(draw: st.DrawFn) -> list[list[tuple[str, int]]]:
    """For each job its (scheme, antecedent); antecedents are jobs before it."""
    before = [
        st.tuples(st.sampled_from(SCHEMES), st.integers(1, number)) for number in range(1, draw(st.integers(1, 8)))
    ]
    return [[], *(draw(st.lists(edge, max_size=3)) for edge in before)]


class Graph(World):
    """Jobs 1, 2, ... with their dependencies, run to their ends in an order and with ends that the test chooses."""

    def __init__(self, edges: list[list[tuple[str, int]]]) -> None:
        super().__init__()
        self.edges = {number: edge for number, edge in enumerate(edges, 1)}
        for number, edge in self.edges.items():
            needs = [{"scheme": scheme, "value": jobid.encode(job)} for scheme, job in edge]
            assert self.submit(number, dependencies=needs) == ""

    def verdicts(self, number: int) -> list[bool | None]:
        """What each edge of a job says, by the definition of a dependency alone."""
        found = []
        for scheme, before in self.edges[number]:
            job = self.core.active.get(before)
            started = job.started if job is not None else inactive_started(self.core.inactive[before])
            result = None if job is not None else self.result(before)
            excepted = job is None and self.gone[before].fatal is not None
            kind = deps.parse({"scheme": scheme, "value": jobid.encode(before)}).kind
            found.append(deps.verdict(kind, started, result, excepted))
        return found

    def check(self) -> None:
        for number in self.edges:
            met = self.verdicts(number)
            job = self.core.active.get(number) or self.gone[number]
            if job.state == DEPEND:
                assert None in met and False not in met, number
            elif job.fatal is not None and job.fatal[0] == "dependency":
                assert False in met, number
            else:
                assert all(met), number


ends = st.sampled_from(["complete", "fail", "cancel", "kill"])


@given(graphs(), st.lists(st.tuples(st.integers(0, 7), ends), max_size=8), st.booleans())
def test_every_job_goes_on_or_ends_as_its_dependencies_say(
    edges: list[list[tuple[str, int]]], choices: list[tuple[int, str]], overlap: bool
) -> None:
    world = Graph(edges)
    world.check()
    late: list[tuple[int, str]] = []
    for choice, how in [*choices, *((0, "complete") for _ in edges)]:
        ready = [number for number, job in world.core.active.items() if job.state == SCHED]
        if ready:
            number = ready[choice % len(ready)]
            if how == "cancel":
                world.cancel(number)
                # Nothing was granted: the scheduler drops the request.
                world.alloc(number, 3)
            else:
                world.alloc(number)
                world.exec(number, "start")
                late.append((number, how))
            world.check()
        if late and not (overlap and ready):
            end(world, *late.pop(0))
            world.check()
    for number, how in late:
        end(world, number, how)
        world.check()
    while any(job.state == SCHED for job in world.core.active.values()):
        world.run(next(number for number, job in world.core.active.items() if job.state == SCHED))
        world.check()
    assert world.core.active == {}
    assert world.core.waiting._dependents == {}, "who is gone is forgotten"


def end(world: Graph, number: int, how: str) -> None:
    if how == "kill":
        world.cancel(number)
    world.exec(number, "finish", status=0 if how == "complete" else 256)
    world.exec(number, "release", ranks="all", final=True)
    assert world.result(number) == {"complete": COMPLETED, "fail": FAILED, "kill": CANCELED}[how]


@given(st.lists(st.sampled_from(["run", "cancel-first", "cancel-last"]), max_size=8), st.integers(1, 6))
def test_one_singleton_of_a_name_is_let_go_at_a_time_and_the_oldest_first(steps: list[str], count: int) -> None:
    world = World()
    names: dict[str, Any] = {"job": {"name": "one"}, "dependencies": [{"scheme": "singleton", "value": ""}]}
    for number in range(1, count + 1):
        assert world.submit(number, **names) == ""
    for step in steps:
        if not world.core.active:
            break
        ids = sorted(world.core.active)
        assert [id for id in ids if world.core.active[id].state == SCHED] == ids[:1]
        if step == "run":
            world.run(ids[0])
        else:
            id = ids[0] if step == "cancel-first" else ids[-1]
            asked = world.core.active[id].alloc_pending
            world.cancel(id)
            if asked:
                world.alloc(id, 3)
    assert world.submit(99, userid=7, **names) == ""
    assert world.core.active[99].state == SCHED, "another user's has its own turn"


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("scheme", [*SCHEMES, "afterstart"])
def test_a_dependency_on_another_users_job_is_refused_and_in_private_mode_it_is_one_that_never_was(
    scheme: str, over: bool
) -> None:
    world = World()
    kind = deps.parse({"scheme": scheme, "value": "1"}).kind
    for id, userid in ((1, 7), (2, 0)):
        assert world.submit(id, userid=userid) == ""
        if over:
            world.run(id)
    denied = f"dependency: {kind}: Permission denied for job {jobid.encode(1)}"
    refusals = []
    for private in (False, True):
        world.core.private = private
        assert world.submit(10, userid=0, **after(scheme, 1)) == denied, "the owner is no exception"
        refusals.append(world.submit(10, userid=8, **after(scheme, 1)))
    never = world.submit(10, userid=8, **after(scheme, 99))
    assert refusals == [denied, never.replace(jobid.encode(99), jobid.encode(1))]
    assert "job not found" in never
    if scheme == "afterany":
        assert world.submit(10, userid=7, **after(scheme, 1)) == ""


@pytest.mark.parametrize(
    ("scheme", "status", "outcome"),
    [
        ("afterok", 0, "runs"),
        ("afterok", 256, "fails"),
        ("afternotok", 256, "runs"),
        ("afternotok", 0, "fails"),
        ("afterany", 256, "runs"),
    ],
)
def test_dependencies_on_the_end_of_a_job(scheme: str, status: int, outcome: str) -> None:
    world = World()
    world.submit(1)
    world.submit(2, **after(scheme, 1))
    assert world.events(2)[1:] == ["dependency-add", "validate"]
    world.run(1, status)
    if outcome == "runs":
        assert world.events(2)[3:] == ["dependency-remove", "depend", "priority"]
    else:
        assert world.events(2)[3:] == ["exception", "clean"]
        assert world.context(2, "exception")["type"] == "dependency"


def test_afterok_is_described_as_flux_does() -> None:
    world = World()
    world.submit(155407351808)
    world.submit(2, **after("afterok", 155407351808))
    text = f"after-success={jobid.encode(155407351808)}"
    assert world.context(2, "dependency-add") == {"description": text}


def test_afterstart_waits_for_the_start_and_fails_without_one() -> None:
    world = World()
    for id in (1, 2):
        world.submit(id)
        world.submit(id + 10, **after("afterstart", id))
    world.alloc(1)
    assert world.events(11)[-2:] == ["dependency-add", "validate"]
    world.exec(1, "start")
    assert world.events(11)[-1] == "priority"
    world.cancel(2)
    world.alloc(2, AllocResponse.CANCEL)
    assert world.events(12)[-2:] == ["exception", "clean"]


def test_only_afterany_takes_a_job_that_never_started() -> None:
    world = World()
    world.submit(1)
    for id, scheme in ((2, "afterany"), (3, "afternotok"), (4, "afterexcept")):
        world.submit(id, **after(scheme, 1))
    world.cancel(1)
    world.alloc(1, AllocResponse.CANCEL)
    assert [world.events(id)[3] for id in (2, 3, 4)] == ["dependency-remove", "exception", "exception"]
    assert "never started" in world.submit(5, **after("afternotok", 1))


def test_afterexcept_takes_a_job_that_ran_into_a_fatal_exception() -> None:
    world = World()
    for id, scheme in ((1, "afterexcept"), (2, "afterexcept")):
        world.submit(id)
        world.submit(id + 10, **after(scheme, id))
    world.run(1, 256)
    world.alloc(2)
    world.exec(2, "start")
    world.cancel(2)
    world.exec(2, "finish", status=15)
    world.exec(2, "release", ranks="all", final=True)
    assert [world.events(id)[3] for id in (11, 12)] == ["exception", "dependency-remove"]


def test_a_dependency_that_can_never_be_met_is_refused() -> None:
    world = World()
    world.submit(1)
    world.run(1, 256)
    name = jobid.encode(1)
    assert world.submit(2, **after("afterok", 1)) == f"dependency: afterok: job {name} failed or was canceled"
    assert "not found" in world.submit(3, **after("afterany", 99))
    assert world.submit(4, dependencies=[{"scheme": "foo", "value": "x"}]) == 'dependency scheme "foo" not supported'
    assert world.core.active == {}


def test_begin_time_lets_a_job_go_when_it_has_come() -> None:
    world = World()
    world.submit(1, dependencies=[{"scheme": "begin-time", "value": "1000"}])
    assert world.context(1, "dependency-add") == {"description": "begin-time=1000.000"}
    world.core.now = 999.0
    world.core.expire()
    assert world.events(1)[-2:] == ["dependency-add", "validate"]
    world.core.now = 1000.0
    world.core.expire()
    world.flush()
    assert world.events(1)[-3:] == ["dependency-remove", "depend", "priority"]


def test_singletons_of_one_name_go_one_by_one() -> None:
    world = World()
    single: dict[str, Any] = {"dependencies": [{"scheme": "singleton", "value": ""}], "job": {"name": "one"}}
    for id in (1, 2, 3):
        world.submit(id, **single)
    assert [world.core.active[id].state == SCHED for id in (1, 2, 3)] == [True, False, False]
    world.run(1)
    assert [world.core.active[id].state == SCHED for id in (2, 3)] == [True, False]
    assert "name" in world.submit(4, dependencies=single["dependencies"])


@pytest.mark.parametrize("how", ["failed", "canceled"])
def test_a_long_chain_of_jobs_ends_with_the_first(how: str) -> None:
    world = World()
    world.submit(1)
    for id in range(2, 2001):
        world.submit(id, **after("afterok", id - 1))
    if how == "failed":
        world.run(1, 256)
    else:
        world.cancel(1)
        world.alloc(1, kind=AllocResponse.CANCEL)
    assert not world.core.active
    assert world.result(2000) == FAILED


def test_a_singleton_that_ends_before_its_turn_lets_the_next_one_go_on() -> None:
    world = World()
    name: dict[str, Any] = {"job": {"name": "S"}}
    single = {"scheme": "singleton", "value": ""}
    world.submit(1, **name, dependencies=[single])
    world.submit(2, **name, dependencies=[single, *after("afterok", 1)["dependencies"]])
    world.submit(3, **name, dependencies=[single])
    world.submit(4, **after("afterany", 1))
    world.run(1, 256)
    assert world.result(2) == FAILED
    assert [world.core.active[id].state for id in (3, 4)] == [SCHED, SCHED]
