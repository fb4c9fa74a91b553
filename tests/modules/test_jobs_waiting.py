"""Jobs that wait for jobs: any graph of dependencies ends as its edges say, in whatever order jobs end."""

from __future__ import annotations

from typing import Any

from core_world import World
from hypothesis import given
from hypothesis import strategies as st

from headrace.modules import jobs_dependencies as deps
from headrace.modules.jobs_record import CANCELED, COMPLETED, DEPEND, FAILED, SCHED, inactive_started
from headrace.spec import jobid

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
