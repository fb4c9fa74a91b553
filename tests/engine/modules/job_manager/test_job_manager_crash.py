"""A seeded simulator: random jobs on a random scheduler and exec service, killed between any two batches of records.

What a crash leaves is the batches that were written; what was promised is what was released after them. Whatever the
moment: no acknowledged job is lost, none starts twice, and all of them end.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Alloc, Answer, Cancel, Free, Inherit, Request, Start
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.replay import replay, restart
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import CLEANUP, RUN, RUNNING
from headrace.formats.spec.message import REQUEST, Message
from headrace.formats.spec.requests.sched import AllocResponse

R: dict[str, Any] = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}]}}


class Simulator:
    """`durable` is the disk; `acknowledged` and `started` are what the world outside has seen."""

    def __init__(self, choices: random.Random) -> None:
        self.random = choices
        self.now = 1000.0
        self.last_id = 0
        self.durable: list[Any] = []
        self.acknowledged: set[int] = set()
        self.started: dict[int, int] = {}
        self.crashes = 0
        self.boot()

    def boot(self) -> None:
        self.core = Core(Queues([]), 0)
        for record in self.durable:
            replay(self.core, record)
        self.core.finished.clear()
        assert self.acknowledged <= set(self.core.active) | set(self.core.inactive)
        self.last_id = max(self.last_id, self.core.max_jobid)
        self.pending: list[tuple[list[Any], list[Any]]] = []
        self.asked: dict[int, Job] = {}
        self.holding: dict[int, int] = {}
        self.running: dict[int, str] = {}
        # Answers of the exec service on their way, by job.
        self.ways: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        self.core.now = self.now
        if self.durable:
            restart(self.core)
        self.core.allocations.scheduler_is_ready(self.random.choice([0, 0, 2]))
        self.core.exec_is_ready()
        self.turn()

    def turn(self) -> None:
        """The end of a loop turn: requests go out at once, the rest waits for the disk."""
        requests, self.core.requests = self.core.requests, []
        for request in requests:
            self.decide(request)
        self.core.finished.clear()
        batch = self.core.take()
        if any(batch):
            self.pending.append(batch)
        if self.core.requests:
            self.turn()

    def decide(self, request: Request) -> None:
        """What the scheduler does with a request."""
        match request:
            case Alloc(job):
                assert job.id not in self.asked
                self.asked[job.id] = job
            case Cancel(id):
                if id in self.asked:
                    del self.asked[id]
                    self.core.allocations.reply(id, AllocResponse.CANCEL, None, None, "")
            case Free(job, r):
                assert r is not None
                assert job.id not in self.running, f"job {job.id} still runs"
                self.give_back(job)
            case Inherit(job, successor):
                self.give_back(job)
                # What the scheduler gave it meanwhile is free again.
                self.holding[successor.id] = 1
                self.asked.pop(successor.id, None)

    def give_back(self, job: Job) -> None:
        self.holding[job.id] -= 1
        assert self.holding[job.id] == 0, f"job {job.id} gave back what it had not"

    def write(self) -> None:
        """The disk takes the next batch, then its effects are released."""
        records, effects = self.pending.pop(0)
        self.durable.extend(records)
        for effect in effects:
            if isinstance(effect, Start):
                job = effect.job
                self.started[job.id] = self.started.get(job.id, 0) + 1
                self.running[job.id] = "starting"
            elif isinstance(effect, Answer):
                self.acknowledged.add(effect.msg.obj["id"])

    def crash(self) -> None:
        """Some of what waits was written, nothing of it was released."""
        self.crashes += 1
        for records, _ in self.pending[: self.random.randrange(len(self.pending) + 1)]:
            self.durable.extend(records)
        self.boot()

    # -- what may happen next

    def submit(self) -> None:
        self.last_id += 1
        system: dict[str, Any] = {"duration": 0, "job": {"name": "one"}}
        known = [*self.core.active, *self.core.inactive]
        if known and self.random.random() < 0.3:
            scheme = self.random.choice(["after", "afterany", "afterok", "afternotok"])
            system["dependencies"] = [{"scheme": scheme, "value": jobid.encode(self.random.choice(known))}]
        elif self.random.random() < 0.1:
            system["dependencies"] = [{"scheme": "singleton", "value": ""}]
        elif self.random.random() < 0.1:
            system["dependencies"] = [{"scheme": "begin-time", "value": str(self.now + 5)}]
        cores = self.random.choice([1, 1, 1, 2])
        jobspec = {"resources": cores, "attributes": {"system": system}, "tasks": [{"command": ["true"]}]}
        flags = self.random.choice([0, 4])
        refusal = self.core.submit(self.last_id, 0, self.random.choice([0, 8, 16, 31]), flags, jobspec)
        if not refusal:
            self.core.effects.append(Answer(Message(REQUEST, obj={"id": self.last_id}), None))

    def schedule(self) -> None:
        if self.asked:
            id = self.random.choice(list(self.asked))
            del self.asked[id]
            if self.random.random() < 0.1:
                self.core.allocations.reply(id, AllocResponse.DENY, None, None, "no")
                return
            self.holding[id] = self.holding.get(id, 0) + 1
            expiration = self.now + self.random.choice([3, 100])
            r = {**R, "execution": {**R["execution"], "expiration": expiration}}
            self.core.allocations.reply(id, AllocResponse.SUCCESS, r, None, "")

    def name_successors(self) -> None:
        """The scheduler's word on who comes next: of one kind, by priority."""
        jobs = sorted((job for job in self.asked.values() if job.priority), key=lambda job: (-job.priority, job.id))
        alike = [job.id for job in jobs if job.jobspec["resources"] == jobs[0].jobspec["resources"]]
        self.core.allocations.successors.name(alike[: self.random.choice([0, 2, 8])], 0.0)

    def say(self, id: int, kind: str, data: dict[str, Any]) -> None:
        self.ways.setdefault(id, []).append((kind, data))
        if self.random.random() < 0.7:
            self.hear(id)

    def hear(self, id: int) -> None:
        """All that is on its way about a job arrives."""
        for kind, data in self.ways.pop(id):
            reply: Any = {"id": id, "type": kind, "data": data}
            self.core.exec_reply(reply)

    def hear_some(self) -> None:
        if self.ways:
            self.hear(self.random.choice(list(self.ways)))

    def execute(self) -> None:
        if not self.running:
            return
        id = self.random.choice(list(self.running))
        state = self.running[id]
        if state == "starting" and self.random.random() < 0.8:
            self.running[id] = "running"
            self.say(id, "start", {})
        elif state == "finished":
            del self.running[id]
            self.say(id, "release", {"ranks": "all", "final": True})
        else:
            self.running[id] = "finished"
            self.say(id, "finish", {"status": self.random.choice([0, 0, 256, 15])})

    def meddle(self) -> None:
        if not self.core.active:
            return
        job = self.random.choice(list(self.core.active.values()))
        choice = self.random.randrange(4)
        if choice == 0:
            self.core.raise_exception(job, "cancel", self.random.choice([0, 3]), "", 0)
        elif choice == 1 and not job.state & (RUN | CLEANUP):
            self.core.set_urgency(job, self.random.randrange(32), 0)
        elif choice == 2 and job.state != CLEANUP:
            self.core.update(job, {"attributes.system.duration": self.random.choice([0.0, 50.0])})
        else:
            on = self.random.random() < 0.6
            self.core.set_queues_started([""], on, None, True)

    def tidy(self) -> None:
        if self.core.zombies and self.random.random() < 0.5:
            self.core.reap(next(iter(self.core.zombies)))
        elif self.random.random() < 0.2:
            gone = self.core.purge(self.core.purgeable(-1.0, 5))
            self.acknowledged -= set(gone)

    def tick(self) -> None:
        self.now += 1.0
        self.core.now = self.now
        self.core.expire()

    def some(self, steps: int) -> None:
        actions = [self.submit, self.schedule, self.execute, self.execute, self.meddle, self.tidy, self.tick]
        actions += [self.name_successors, self.hear_some]
        for _ in range(steps):
            self.random.choice(actions)()
            self.turn()
            self.check()
            while self.pending and self.random.random() < 0.5:
                self.write()

    def check(self) -> None:
        jobs = self.core.active.values()
        assert self.core.running == sum(bool(job.state & RUNNING) for job in jobs)
        assert self.core.allocations.pending == sum(job.alloc_pending for job in jobs)
        assert all(count == 1 for count in self.started.values()), self.started

    def finish(self) -> None:
        """Let everything go: every job must end."""
        self.core.set_queues_started([""], True, None, True)
        for job in list(self.core.active.values()):
            if job.id in self.core.active and not job.state & RUNNING and job.urgency == 0:
                self.core.set_urgency(job, 16, 0)
        for _ in range(60 + 20 * len(self.core.active)):
            self.turn()
            while self.pending:
                self.write()
            for action in (self.schedule, self.name_successors, *[self.execute] * 3, self.hear_some, self.tick):
                action()
                self.turn()
        assert not self.core.active, [(job.id, job.state, job.events[-3:]) for job in self.core.active.values()]
        assert not any(self.holding.values())
        while self.pending:
            self.write()
        again = Core(Queues([]), 0)
        for record in self.durable:
            replay(again, record)
        assert (again.inactive, again.zombies, again.running) == (self.core.inactive, self.core.zombies, 0)


def run(seed: int, crashes: int) -> None:
    simulator = Simulator(random.Random(seed))
    for _ in range(crashes):
        simulator.some(simulator.random.randrange(1, 30))
        simulator.crash()
    simulator.finish()
    assert simulator.crashes == crashes


@pytest.mark.parametrize("seed", range(60))
def test_no_crash_loses_doubles_or_strands_a_job(seed: int) -> None:
    run(seed, 5)


@pytest.mark.slow
def test_ten_thousand_crashes() -> None:
    for seed in range(1000, 2000):
        run(seed, 10)


class Machine(RuleBasedStateMachine):
    """The same world, with every choice made by hypothesis, so that what fails is made small."""

    @initialize(choices=st.randoms(use_true_random=False))
    def begin(self, choices: random.Random) -> None:
        self.world = Simulator(choices)

    @rule()
    def submit(self) -> None:
        self.world.submit()
        self.world.turn()

    @rule()
    def schedule(self) -> None:
        self.world.schedule()
        self.world.turn()

    @rule()
    def execute(self) -> None:
        self.world.execute()
        self.world.turn()

    @rule()
    def meddle(self) -> None:
        self.world.meddle()
        self.world.turn()

    @rule()
    def tidy(self) -> None:
        self.world.tidy()
        self.world.turn()

    @rule()
    def tick(self) -> None:
        self.world.tick()
        self.world.turn()

    @rule()
    def name_successors(self) -> None:
        self.world.name_successors()
        self.world.turn()

    @precondition(lambda self: self.world.pending)
    @rule()
    def write(self) -> None:
        self.world.write()

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @invariant()
    def counts_are_right(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase
