"""What a job policy causes in the core: events, withheld jobs and releases. Limits hold in any order of events."""

from __future__ import annotations

from typing import Any

import pytest
from accounts_world import association, nodes, policy, queue, world_with
from core_world import World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine.modules.job_manager.effects import Alloc, Cancel, Free, Prioritize
from headrace.engine.modules.job_manager.mf_priority import MultiFactorPolicy
from headrace.engine.modules.job_manager.policy import DEFAULT
from headrace.engine.modules.job_manager.reasons import own_reason
from headrace.engine.modules.job_manager.records import JobAdded
from headrace.engine.modules.job_manager.replay import restart
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_state import PRIORITY, RUN, SCHED
from headrace.formats.spec.requests.sched import AllocResponse
from headrace.sched.accounting.multifactor import MultiFactor
from sizes import size

USER = 1000


def config(*associations: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {"associations": list(associations), **tables}


def asked(world: World) -> list[int]:
    return [request.job.id for request in world.asked(Alloc)]


def factors_of(world: World) -> MultiFactor:
    policy = world.core.policy
    assert isinstance(policy, MultiFactorPolicy)
    return policy.factors


def end(world: World, id: int) -> None:
    world.exec(id, "start")
    world.exec(id, "finish", status=0)
    world.exec(id, "release", ranks="all", final=True)


def test_the_policy_decides_about_jobspec_memo_and_priority() -> None:
    world = world_with(config(association(USER, "A", fairshare=0.75, def_project="p")))
    assert world.submit(1, userid=USER, urgency=17) == ""
    assert [(name, context) for _, name, context in world.core.active[1].events] == [
        ("submit", {"userid": USER, "urgency": 17, "flags": 0, "version": 1}),
        ("jobspec-update", {"attributes.system.bank": "A", "attributes.system.project": "p"}),
        ("validate", None),
        ("depend", None),
        ("memo", {"fairshare": 0.75}),
        ("priority", {"priority": 76000}),
    ]


def test_equal_jobs_share_their_updated_jobspec() -> None:
    world = world_with(config(association(USER, "A"), association(USER + 1, "B", def_bank="B")))
    spec = nodes(1)
    for id, userid in ((1, USER), (2, USER), (3, USER + 1)):
        world.core.submit(id, userid, 16, 0, spec)
    first, second, third = (world.core.active[id].jobspec for id in (1, 2, 3))
    assert first is second is not spec
    assert [js.system(one)["bank"] for one in (first, third)] == ["A", "B"]
    assert "bank" not in js.system(spec)


def test_a_refused_job_leaves_nothing_behind() -> None:
    world = world_with(config(association(USER, "A", max_active_jobs=1)))
    assert world.submit(1, userid=USER + 1) == f"cannot find user/bank or user/default bank entry for uid: {USER + 1}"
    assert world.submit(2, userid=USER, dependencies=[{"scheme": "x", "value": "y"}]) != ""
    assert not any(isinstance(record, JobAdded) for record in world.records)
    assert world.submit(3, userid=USER) == ""
    assert world.submit(4, userid=USER) == "user has max active jobs"


def test_a_hold_is_a_dependency_that_the_end_of_another_job_removes() -> None:
    world = world_with(config(association(USER, "A", max_running_jobs=1)))
    world.submit(1, userid=USER)
    world.alloc(1)
    world.submit(2, userid=USER)
    assert world.events(2)[-2:] == ["validate", "dependency-add"]
    assert own_reason(world.core, world.core.active[2]) == "dependency: max-running-jobs-user-limit"
    end(world, 1)
    assert world.events(2)[4:] == ["dependency-remove", "depend", "memo", "priority"]
    assert asked(world) == [1, 2]


def test_resources_beyond_a_limit_go_back_and_the_job_is_asked_for_when_there_is_room() -> None:
    world = world_with(config(association(USER, "A", max_running_jobs=1)))
    for id in (1, 2, 3):
        world.submit(id, userid=USER)
    assert asked(world) == [1, 2, 3]
    world.alloc(1)
    world.alloc(2)
    assert [request.job.id for request in world.asked(Free)] == [2]
    # The third job would meet the limit too, so it is withdrawn before resources are allocated to it.
    assert world.asked(Cancel) == [Cancel(3)]
    world.alloc(3, AllocResponse.CANCEL)
    for id in (2, 3):
        job = world.core.active[id]
        assert (job.state, "alloc" in world.events(id)) == (SCHED, False)
        assert own_reason(world.core, job) == "limit: max-running-jobs-user-limit"
        assert job.annotations is not None
        assert job.annotations["sched"] == {"reason_pending": "limit: max-running-jobs-user-limit"}
    end(world, 1)
    # There is room for one of them.
    assert asked(world) == [1, 2, 3, 2]
    assert own_reason(world.core, world.core.active[2]) == ""
    world.alloc(2)
    end(world, 2)
    assert asked(world) == [1, 2, 3, 2, 3]


def test_a_successor_counts_only_once_the_job_before_it_has_ended() -> None:
    world = world_with(config(association(USER, "A", max_running_jobs=1)))
    for id in (1, 2):
        world.submit(id, userid=USER)
    world.alloc(1)
    world.core.allocations.successors.name([2], 0.0)
    end(world, 1)
    assert world.core.active[2].state == RUN
    assert world.asked(Free) == []


def test_a_successor_beyond_a_limit_is_withheld() -> None:
    world = world_with(config(association(USER, "A", max_running_jobs=1), association(USER + 1, "A")))
    world.submit(1, userid=USER)
    world.submit(2, userid=USER + 1)
    world.submit(3, userid=USER)
    world.alloc(1)
    world.alloc(2)
    world.core.allocations.successors.name([3], 0.0)
    end(world, 2)
    assert [request.job.id for request in world.asked(Free)] == [2]
    assert world.asked(Cancel) == [Cancel(3)]
    assert world.core.active[3].state == SCHED


def test_only_changed_priorities_make_events_and_reach_the_scheduler() -> None:
    world = world_with(config(association(USER, "A"), association(USER + 1, "A", fairshare=0.25)))
    world.submit(1, userid=USER)
    world.submit(2, userid=USER + 1)
    factors = factors_of(world)
    factors.rec_update([association(USER, "A"), association(USER + 1, "A", fairshare=0.75)])
    for job in world.core.active.values():
        world.core.steps.reprioritize(job)
    world.flush()
    assert world.events(1)[-1] == "priority" and world.events(1).count("priority") == 1
    assert world.events(2)[-2:] == ["memo", "priority"]
    assert world.asked(Prioritize) == [Prioritize({2: 75000})]
    assert [job.priority for job in world.core.active.values()] == [50000, 75000]


def reprioritize_all(world: World) -> None:
    for job in list(world.core.active.values()):
        world.core.steps.reprioritize(job)
    world.flush()


@pytest.mark.parametrize("limit", [0, 1])
def test_a_job_is_asked_for_when_its_priority_rises_from_zero_and_withdrawn_when_it_falls_to_zero(
    limit: int,
) -> None:
    world = world_with(config(association(USER, "A"), association(USER + 1, "A", fairshare=0.0)))
    world.core.allocations.scheduler_is_ready(limit)
    world.submit(1, userid=USER)
    world.submit(2, userid=USER + 1)
    assert asked(world) == [1]
    factors_of(world).rec_update([association(USER, "A", fairshare=0.0), association(USER + 1, "A", fairshare=0.25)])
    reprioritize_all(world)
    assert world.asked(Cancel) == [Cancel(1)]
    world.alloc(1, AllocResponse.CANCEL)
    assert asked(world) == [1, 2]
    assert [job.priority for job in world.core.active.values()] == [0, 25000]


def test_a_job_behind_the_limit_of_the_scheduler_keeps_its_place_in_the_new_order() -> None:
    world = world_with(config(association(USER, "A", fairshare=0.9), association(USER + 1, "A", fairshare=0.1)))
    world.core.allocations.scheduler_is_ready(1)
    world.submit(1, userid=USER)
    world.submit(2, userid=USER + 1)
    factors_of(world).rec_update([association(USER + 1, "A", fairshare=0.2)])
    reprioritize_all(world)
    world.alloc(1)
    assert asked(world) == [1, 2]


def test_the_scheduler_gets_collected_priorities_of_the_jobs_that_it_still_has() -> None:
    world = world_with(config(association(USER, "A")))
    for id in (1, 2, 3):
        world.submit(id, userid=USER)
    factors_of(world).rec_update([association(USER, "A", fairshare=0.75)])
    world.core.allocations.collect_priorities()
    reprioritize_all(world)
    world.core.set_urgency(world.core.active[2], 17, 0)
    world.alloc(1)
    assert world.asked(Prioritize) == []
    world.core.allocations.send_priorities()
    world.flush()
    assert world.asked(Prioritize) == [Prioritize({2: 76000, 3: 75000})]
    # A scheduler that has gone meanwhile gets no priorities: the next one gets them with the requests.
    world.core.allocations.collect_priorities()
    factors_of(world).rec_update([association(USER, "A", fairshare=0.25)])
    reprioritize_all(world)
    world.core.allocations.scheduler_is_gone()
    world.core.allocations.send_priorities()
    world.flush()
    assert len(world.asked(Prioritize)) == 1


def test_a_job_in_sched_without_a_bank_gets_one_when_the_policy_is_loaded() -> None:
    world = World()
    world.submit(1, userid=USER)
    world.submit(2, userid=0)
    world.submit(3, userid=USER)
    world.alloc(3)
    world.core.steps.replace(policy(config(association(USER, "A", def_project="p"))))
    reprioritize_all(world)
    assert [(name, context) for _, name, context in world.core.active[1].events[4:]] == [
        ("jobspec-update", {"attributes.system.bank": "A", "attributes.system.project": "p"}),
        ("memo", {"fairshare": 0.5}),
        ("priority", {"priority": 50000}),
    ]
    # The scheduler has the old jobspec, so it gets a new request.
    assert world.asked(Cancel) == [Cancel(1)]
    world.alloc(1, AllocResponse.CANCEL)
    assert asked(world) == [1, 2, 3, 1]
    # The owner has no association, and the jobspec of a running job does not change.
    assert "jobspec-update" not in world.events(2) + world.events(3)
    count = len(world.events(1))
    reprioritize_all(world)
    assert len(world.events(1)) == count


def test_jobs_wait_for_data_and_are_then_judged() -> None:
    world = world_with({})
    for id, userid in ((1, USER), (2, USER + 1)):
        assert world.submit(id, userid=userid) == ""
        assert world.core.active[id].state == PRIORITY
    factors_of(world).rec_update([association(USER, "A")])
    for job in list(world.core.active.values()):
        world.core.steps.reprioritize(job)
    world.flush()
    assert world.events(1)[3:] == ["jobspec-update", "memo", "priority"]
    assert world.context(2, "exception") == {
        "type": "mf_priority",
        "severity": 0,
        "note": f"cannot find user/bank or user/default bank entry for uid: {USER + 1}",
        "userid": 0,
    }
    assert 2 in world.core.inactive


def test_another_policy_counts_the_jobs_that_are_there() -> None:
    world = world_with({})
    world.core.steps.replace(DEFAULT)
    for id in (1, 2, 3):
        world.submit(id, userid=USER)
    world.alloc(1)
    world.core.steps.replace(policy(config(association(USER, "A", max_running_jobs=1))))
    world.alloc(2)
    world.flush()
    assert world.core.active[2].state == SCHED
    assert world.asked(Cancel) == [Cancel(3)]
    world.alloc(3, AllocResponse.CANCEL)
    # Without the policy nothing is withheld.
    world.core.steps.replace(DEFAULT)
    world.flush()
    assert asked(world) == [1, 2, 3, 2, 3]


def test_a_loaded_policy_holds_jobs_in_depend_and_knows_holds_of_an_earlier_load() -> None:
    rows = config(association(USER, "A", max_running_jobs=1))
    world = world_with(rows)
    world.submit(1, userid=USER)
    world.alloc(1)
    world.submit(2, userid=USER)
    world.core.steps.replace(DEFAULT)
    world.core.steps.replace(policy(rows))
    world.flush()
    assert world.events(2).count("dependency-add") == 1
    end(world, 1)
    assert world.core.active[2].state == SCHED


QUEUES = ["batch", "debug"]
ACCOUNTS = [(USER, "A"), (USER, "B"), (USER + 1, "A")]


class Limits(RuleBasedStateMachine):
    """Random jobs of three associations in two queues. Whoever starts is within the limits of that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.scale = 1
        self.started: set[int] = set()
        self.world = World(QUEUES)

    @initialize(strict=st.booleans())
    def begin(self, strict: bool) -> None:
        self.strict = strict
        self.world.core.set_queues_started(QUEUES, True, None, True)
        self.load()

    def tables(self) -> dict[str, Any]:
        limits = {"max_running_jobs": 2 * self.scale, "max_nodes": 3 * self.scale, "max_sched_jobs": 3 * self.scale}
        queues = [
            queue("batch", max_running_jobs=self.scale, max_nodes_per_job=9, max_nodes=4 * self.scale),
            queue("debug", max_nodes_per_assoc=3 * self.scale, max_nodes_per_job=9, max_time_per_job=9**9),
        ]
        rows = [association(user, bank, **limits) for user, bank in ACCOUNTS]
        return config(
            *rows, queues=queues if not self.strict else [{**one, "max_time_per_job": 2147483647} for one in queues]
        )

    def load(self) -> None:
        self.world.core.steps.replace(policy(self.tables(), strict=self.strict))
        self.world.flush()

    def jobs(self, state: int) -> list[int]:
        return [id for id, job in self.world.core.active.items() if job.state == state]

    def waiting(self) -> list[int]:
        return [id for id, job in self.world.core.active.items() if job.alloc_pending]

    @rule(
        account=st.sampled_from(ACCOUNTS),
        named=st.booleans(),
        queue=st.sampled_from(QUEUES),
        size=st.integers(1, 3),
        urgency=st.sampled_from((0, 16, 16, 16, 20)),
        again=st.booleans(),
    )
    def submit(self, account: tuple[int, str], named: bool, queue: str, size: int, urgency: int, again: bool) -> None:
        self.number += 1
        userid, bank = account
        system: dict[str, Any] = {"bank": bank} if named else {}
        if again:
            system["requeue"] = True
        core = self.world.core
        core.now += 1
        core.submit(self.number, userid, urgency, 0, nodes(size, queue=queue, **system))
        self.world.flush()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def allocate(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from(self.waiting())))

    def answer(self, id: int) -> None:
        job = self.world.core.active[id]
        self.world.alloc(id, AllocResponse.CANCEL if job.alloc_canceled else AllocResponse.SUCCESS)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def allocate_in_vain(self, data: st.DataObject) -> None:
        """An allocation that crosses a cancellation."""
        self.world.alloc(data.draw(st.sampled_from(self.waiting())))

    @precondition(lambda self: self.jobs(RUN))
    @rule(data=st.data(), with_successors=st.booleans())
    def end(self, data: st.DataObject, with_successors: bool) -> None:
        self.world.core.allocations.successors.name(self.waiting() if with_successors else [], 0.0)
        end(self.world, data.draw(st.sampled_from(self.jobs(RUN))))

    @precondition(lambda self: self.jobs(RUN))
    @rule(data=st.data())
    def lose_a_node(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.jobs(RUN)))
        if self.world.core.requeues_left(self.world.core.active[id]):
            self.world.exec(id, "release", ranks="all", final=True, requeue=True)

    @precondition(lambda self: self.world.core.active)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.world.core.active)))
        self.world.cancel(id)
        if id in self.world.core.active and self.world.core.active[id].start_sent:
            self.world.exec(id, "release", ranks="all", final=True)

    @precondition(lambda self: self.jobs(SCHED))
    @rule(data=st.data(), urgency=st.sampled_from((0, 10, 16, 31)))
    def prioritize(self, data: st.DataObject, urgency: int) -> None:
        id = data.draw(st.sampled_from(self.jobs(SCHED)))
        self.world.core.set_urgency(self.world.core.active[id], urgency, 0)
        self.world.flush()

    @precondition(lambda self: self.jobs(SCHED))
    @rule(
        data=st.data(), change=st.sampled_from((("queue", "batch"), ("queue", "debug"), ("bank", "A"), ("bank", "B")))
    )
    def update(self, data: st.DataObject, change: tuple[str, str]) -> None:
        core = self.world.core
        job = core.active[data.draw(st.sampled_from(self.jobs(SCHED)))]
        key = f"attributes.system.{change[0]}"
        if js.system(job.jobspec).get(change[0]) != change[1] and not core.policy.update(job, key, change[1]):
            core.update(job, {key: change[1]})
            self.world.flush()

    @precondition(lambda self: self.world.core.active)
    @rule(data=st.data())
    def change_duration(self, data: st.DataObject) -> None:
        core = self.world.core
        job = core.active[data.draw(st.sampled_from(list(core.active)))]
        if job.state in (SCHED, RUN):
            core.update(job, {"attributes.system.duration": 60.0})
            self.world.flush()

    @precondition(lambda self: self.scale < 3)
    @rule()
    def raise_limits(self) -> None:
        self.scale += 1
        factors = factors_of(self.world)
        factors.load(self.tables())
        self.world.core.steps.release(factors.reprioritize())
        for job in list(self.world.core.active.values()):
            self.world.core.steps.reprioritize(job)
        self.world.flush()

    @rule()
    def reload(self) -> None:
        self.world.core.steps.replace(DEFAULT)
        self.load()

    @rule()
    def crash(self) -> None:
        """The journal is replayed without a policy, and gives the same jobs. Then the policy is loaded."""
        old = self.world
        core = old.replayed()
        for id, job in old.core.active.items():
            assert (core.active[id].state, core.active[id].events) == (job.state, job.events)
            assert (core.active[id].dependencies or {}) == (job.dependencies or {})
        assert core.inactive == old.core.inactive
        core.finished.clear()
        core.now = old.core.now
        old.core = core
        core.policy = DEFAULT
        self.load()
        restart(core)
        core.allocations.scheduler_is_ready(0)
        core.exec_is_ready()
        old.flush()
        self.started.clear()

    @invariant()
    def limits_hold(self) -> None:
        core = self.world.core
        running = [job for job in core.active.values() if job.has_resources]
        # Lower limits than before do not end running jobs, so only the scale of the moment counts.
        by_account: dict[Any, list[int]] = {}
        for job in running:
            system = js.system(job.jobspec)
            size = js.counts(job.jobspec).nnodes
            account = (job.userid, system["bank"])
            for key in (account, (account, job.queue), job.queue):
                by_account.setdefault(key, []).append(size)
        for key, sizes in by_account.items():
            if key in ACCOUNTS:
                assert len(sizes) <= 2 * self.scale and sum(sizes) <= 3 * self.scale
            elif key == "batch":
                assert not self.strict or sum(sizes) <= 4 * self.scale
            elif key[1] == "batch":
                assert len(sizes) <= self.scale
            elif key[1] == "debug":
                assert sum(sizes) <= 3 * self.scale

    def teardown(self) -> None:
        """Every job comes to its end: nothing waits for room that is there."""
        core = self.world.core
        for job in list(core.active.values()):
            if job.urgency == 0 and not job.has_resources:
                core.set_urgency(job, 16, 0)
        self.world.flush()
        rounds = 0
        while core.active:
            rounds += 1
            assert rounds < 500, [(job.id, job.state, own_reason(core, job)) for job in core.active.values()]
            before = len(self.world.requests)
            for id in self.waiting():
                if id in core.active and core.active[id].alloc_pending:
                    self.answer(id)
            self.limits_hold()
            # Each job is allocated in vain once at most until another one ends.
            assert len(self.world.requests) - before <= 4 * len(core.active) + 4
            for id in self.jobs(RUN):
                end(self.world, id)


TestLimits = pytest.mark.soak(Limits.TestCase)
TestLimits.settings = settings(max_examples=size("limited_cores"), stateful_step_count=40)
