"""A scheduler that takes so many requests at a time has the most urgent ones, whatever happens to jobs meanwhile."""

from __future__ import annotations

from core_world import World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.effects import Alloc, Cancel
from headrace.formats.spec.job_state import SCHED
from headrace.formats.spec.requests.sched import AllocResponse


class LimitedScheduler(RuleBasedStateMachine):
    """`asked` are the requests that the scheduler has, `canceled` those it was told to drop and has not answered."""

    @initialize(limit=st.integers(1, 3))
    def begin(self, limit: int) -> None:
        self.world = World(["batch"])
        self.world.core.set_queues_started(["batch"], True, None, True)
        self.limit = limit
        self.world.core.allocations.scheduler_is_ready(limit)
        self.number = 0
        self.asked: set[int] = set()
        self.canceled: set[int] = set()

    def heard(self) -> None:
        self.world.flush()
        for request in self.world.requests:
            if isinstance(request, Alloc):
                assert request.job.id not in self.asked
                self.asked.add(request.job.id)
            elif isinstance(request, Cancel) and request.id in self.asked:
                self.canceled.add(request.id)
        self.world.requests.clear()

    def job(self, choice: int) -> Job | None:
        waiting = sorted(self.world.core.active)
        return self.world.core.active[waiting[choice % len(waiting)]] if waiting else None

    @rule(urgency=st.integers(0, 31))
    def submit(self, urgency: int) -> None:
        self.number += 1
        self.world.submit(self.number, urgency=urgency, queue="batch")

    @rule(choice=st.integers(0, 99), urgency=st.integers(0, 31))
    def change(self, choice: int, urgency: int) -> None:
        job = self.job(choice)
        if job is not None and job.state == SCHED:
            self.world.core.set_urgency(job, urgency, 0)

    @rule(choice=st.integers(0, 99))
    def cancel(self, choice: int) -> None:
        job = self.job(choice)
        if job is not None and job.state == SCHED:
            self.world.cancel(job.id)

    @rule(on=st.booleans())
    def switch(self, on: bool) -> None:
        self.world.core.set_queues_started(["batch"], on, None, True)

    @precondition(lambda self: self.asked)
    @rule(choice=st.integers(0, 99), kind=st.sampled_from([AllocResponse.SUCCESS, AllocResponse.DENY]))
    def answer(self, choice: int, kind: int) -> None:
        id = sorted(self.asked)[choice % len(self.asked)]
        self.asked.discard(id)
        self.canceled.discard(id)
        self.world.alloc(id, kind)

    @precondition(lambda self: self.canceled)
    @rule()
    def drop(self) -> None:
        id = min(self.canceled)
        self.canceled.discard(id)
        self.asked.discard(id)
        self.world.alloc(id, AllocResponse.CANCEL)

    @invariant()
    def it_has_the_most_urgent(self) -> None:
        self.heard()
        core = self.world.core
        assert len(self.asked) == core.allocations.pending <= self.limit
        if self.canceled:
            return
        waiting = [job for job in core.active.values() if job.state == SCHED and job.priority > 0]
        waiting = [job for job in waiting if core.queues.started(job.queue)]
        waiting.sort(key=lambda job: (-job.priority, job.id))
        assert self.asked == {job.id for job in waiting[: self.limit]}


TestLimitedScheduler = LimitedScheduler.TestCase
TestLimitedScheduler.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_limited_scheduler_gets_the_most_urgent_jobs() -> None:
    world = World()
    world.core.allocations.scheduler_is_ready(1)
    world.submit(1)
    world.submit(2)
    assert [request.job.id for request in world.asked(Alloc)] == [1]
    world.alloc(1)
    assert [request.job.id for request in world.asked(Alloc)] == [1, 2]


def test_a_more_urgent_job_takes_the_place_before_a_limited_scheduler() -> None:
    world = World()
    world.core.allocations.scheduler_is_ready(2)
    for id, urgency in ((1, 12), (2, 14), (3, 20), (4, 18)):
        world.submit(id, urgency=urgency)
    assert ([request.id for request in world.asked(Cancel)], [request.job.id for request in world.asked(Alloc)]) == (
        [1],
        [1, 2],
    )
    world.alloc(1, AllocResponse.CANCEL)
    assert ([request.id for request in world.asked(Cancel)], [request.job.id for request in world.asked(Alloc)]) == (
        [1, 2],
        [1, 2, 3],
    )
    world.alloc(2, AllocResponse.CANCEL)
    assert [request.job.id for request in world.asked(Alloc)] == [1, 2, 3, 4]
    world.core.set_urgency(world.core.active[3], 13, 0)
    world.flush()
    assert world.asked(Cancel) == [Cancel(1), Cancel(2), Cancel(3)]
