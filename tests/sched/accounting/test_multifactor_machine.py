"""Random lives of jobs under the multi-factor policy, against counts and releases that are computed anew from all jobs.

The machine is a small job manager that does what the policy answers. Whatever happens, the counts are those of the jobs
that exist, no job that enters SCHED or starts exceeds a limit (unless limits are looked at at submission only), and in
the end every job has run. With limits at submission the releases are those of the plain algorithm: the oldest held job
first, each hold on its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from accounting_rows import UNLIMITED, association_row, queue_row
from headrace.formats.spec.job_state import DEPEND, INACTIVE, PRIORITY, RUN, SCHED
from headrace.sched.accounting.multifactor import MultiFactor
from headrace.sched.accounting.values import Release, Request
from sizes import size

USERS, BANKS, QUEUES = (1, 2), ("A", "B"), ("", "q", "r", "unknown")
FEW = st.sampled_from([1, 2, 3, UNLIMITED])
SIZES = st.sampled_from([4, 6, UNLIMITED])
ASSOCIATION = st.fixed_dictionaries(
    {"max_running_jobs": FEW, "max_sched_jobs": FEW, "max_nodes": SIZES, "max_cores": st.sampled_from([8, UNLIMITED])}
)
QUEUE = st.fixed_dictionaries(
    {
        "max_running_jobs": FEW,
        "max_sched_jobs": FEW,
        "max_nodes_per_assoc": SIZES,
        "max_sched_nodes_per_assoc": SIZES,
        "max_sched_cores_per_assoc": st.sampled_from([8, 12, UNLIMITED]),
        "max_nodes": SIZES,
        "max_cores": st.sampled_from([8, 12, UNLIMITED]),
    }
)
JOB = st.fixed_dictionaries(
    {
        "userid": st.sampled_from([1, 1, 2]),
        "bank": st.sampled_from(["A", "A", "A", "B"]),
        "queue": st.sampled_from(["q", "q", "q", "r", "", "unknown"]),
        "size": st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 4), (3, 3), (4, 8)]),
        "shape": st.sampled_from([0, 0, 1]),
        "waits": st.sampled_from([False, False, False, True]),
    }
)
KEYS = {"attributes.system.queue": "queue", "attributes.system.bank": "bank"}


class Job:
    """A job as the manager has it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state: int = DEPEND
        self.urgency = 16
        self.dependencies: list[str] = []
        # Whether the scheduler has the job's request.
        self.is_asked = False


class Used:
    """The counts of some jobs, and places beside them."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = {RUN: 0, SCHED: 0}
        self.nodes = {RUN: 0, SCHED: 0}
        self.cores = {RUN: 0, SCHED: 0}
        for job in jobs:
            if job.state in self.jobs:
                self.jobs[job.state] += 1
                self.nodes[job.state] += job.request.nodes
                self.cores[job.state] += job.request.cores


class Lives(RuleBasedStateMachine):
    """Jobs of two users in two banks."""

    @initialize(
        rows=st.lists(ASSOCIATION, min_size=4, max_size=4),
        queues=st.lists(QUEUE, min_size=2, max_size=2),
        at_submit=st.booleans(),
        strict=st.booleans(),
    )
    def begin(self, rows: list[dict[str, int]], queues: list[dict[str, int]], at_submit: bool, strict: bool) -> None:
        self.at_submit, self.strict = at_submit, strict
        self.jobs: dict[int, Job] = {}
        self.ids = 0
        # Whether all waiting jobs were looked at since the limits were changed.
        self.is_current = True
        # The held jobs, in the order in which they got their holds.
        self.held: list[Job] = []
        pairs = [(user, bank) for user in USERS for bank in BANKS]
        self.rows = {
            (user, bank): association_row(user, bank, def_bank="A", queues="q,r", **row)
            for (user, bank), row in zip(pairs, rows)
        }
        self.queues = {name: queue_row(name, **row) for name, row in zip(("q", "r"), queues)}
        self.load()

    def load(self) -> None:
        self.policy = MultiFactor(99, strict=self.strict, at_submit=self.at_submit)
        self.policy.load(
            {"associations": [*self.rows.values()], "queues": [*self.queues.values()], "projects": [{"project": "*"}]}
        )

    # What a manager does.

    def follow(self, releases: list[Release], expected: list[Release] | None) -> None:
        if self.at_submit and expected is not None:
            assert releases == expected
        for jobid, name in releases:
            job = self.jobs[jobid]
            job.dependencies.remove(name)
            if not any(name != "other" for name in job.dependencies):
                self.held.remove(job)
            self.advance(job)
        for jobid in self.policy.ready():
            job = self.jobs[jobid]
            assert not job.is_asked
            assert job.state in (PRIORITY, SCHED)
            if job.state == PRIORITY:
                self.prioritize(job)
            else:
                job.is_asked = True

    def advance(self, job: Job) -> None:
        if not job.dependencies and job.state == DEPEND:
            job.state = PRIORITY
            self.prioritize(job)

    def prioritize(self, job: Job) -> None:
        priority = self.policy.priority(job.request, job.urgency)
        if priority is not None and job.state == PRIORITY:
            job.state = SCHED
            job.is_asked = True
            if not self.at_submit:
                assert not self.exceeded(job, SCHED)
            self.follow(self.policy.entered(job.request, SCHED), None)

    # The limits, looked up the long way.

    def used(self, job: Job, queue: bool = False, all_users: bool = False) -> Used:
        mine = job.request
        return Used(
            one
            for one in self.jobs.values()
            if (all_users or (one.request.userid, one.request.bank) == (mine.userid, mine.bank))
            and (not queue or one.request.queue == mine.queue)
        )

    def exceeded(self, job: Job, state: int) -> list[str]:
        """The limits that are exceeded now and count a job in a state."""
        row, queue = self.rows[job.request.userid, job.request.bank], self.queues.get(job.request.queue)
        mine, there, everyone = self.used(job), self.used(job, True), self.used(job, True, True)
        counted = {("max_sched_jobs", SCHED): mine.jobs[SCHED], ("max_running_jobs", RUN): mine.jobs[RUN]}
        counted |= {("max_nodes", RUN): mine.nodes[RUN], ("max_cores", RUN): mine.cores[RUN]}
        found = [name for (name, where), count in counted.items() if where == state and count > row[name]]
        if queue is not None:
            counted = {("max_sched_jobs", SCHED): there.jobs[SCHED], ("max_running_jobs", RUN): there.jobs[RUN]}
            counted["max_sched_nodes_per_assoc", SCHED] = there.nodes[SCHED]
            counted["max_sched_cores_per_assoc", SCHED] = there.cores[SCHED]
            counted["max_nodes_per_assoc", SCHED] = there.nodes[SCHED] + there.nodes[RUN]
            counted["max_nodes_per_assoc", RUN] = there.nodes[RUN]
            if self.strict:
                counted["max_nodes", RUN] = everyone.nodes[RUN]
                counted["max_cores", RUN] = everyone.cores[RUN]
            found += [name for (name, where), count in counted.items() if where == state and count > queue[name]]
        return found

    def fits(self, name: str, job: Job, taken: list[tuple[Job, list[str]]]) -> bool:
        """Whether a hold of a job is not needed, with the places that released jobs have taken."""
        row, queue = self.rows[job.request.userid, job.request.bank], self.queues.get(job.request.queue)
        mine, there = self.used(job), self.used(job, True)
        for one, gone in taken:
            same = one.request.queue == job.request.queue
            for used in (mine, there) if same else (mine,):
                used.jobs[SCHED] += 1
                used.nodes[SCHED] += one.request.nodes
                used.cores[SCHED] += one.request.cores
            mine.jobs[RUN] += "max-running-jobs-user-limit" in gone
            there.jobs[RUN] += same and "max-run-jobs-queue" in gone
        nodes, cores = job.request.nodes, job.request.cores
        if name == "max-running-jobs-user-limit":
            return mine.jobs[RUN] < row["max_running_jobs"]
        if name == "max-sched-jobs-user-limit":
            return mine.jobs[SCHED] < row["max_sched_jobs"]
        if name == "max-resources-user-limit":
            return mine.nodes[RUN] + nodes <= row["max_nodes"] and mine.cores[RUN] + cores <= row["max_cores"]
        return (
            queue is None
            or {
                "max-run-jobs-queue": there.jobs[RUN] < queue["max_running_jobs"],
                "max-sched-jobs-queue-limit": there.jobs[SCHED] < queue["max_sched_jobs"],
                "max-sched-nodes-queue-limit": there.nodes[SCHED] + nodes <= queue["max_sched_nodes_per_assoc"],
                "max-sched-cores-queue-limit": there.cores[SCHED] + cores <= queue["max_sched_cores_per_assoc"],
                "max-resources-queue": there.nodes[RUN] + there.nodes[SCHED] + nodes <= queue["max_nodes_per_assoc"],
            }[name]
        )

    def expected(self, userid: int, bank: str) -> list[Release]:
        """The releases of an association, by the plain algorithm."""
        releases: list[Release] = []
        taken: list[tuple[Job, list[str]]] = []
        for job in self.held:
            if (job.request.userid, job.request.bank) != (userid, bank):
                continue
            holds = [name for name in job.dependencies if name != "other"]
            gone = [name for name in holds if self.fits(name, job, taken)]
            releases += [Release(job.request.id, name) for name in gone]
            if gone == holds:
                taken.append((job, gone))
        return releases

    # What happens.

    @rule(jobs=st.lists(JOB, min_size=1, max_size=6))
    def submit(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            self.submit_one(**job)

    def submit_one(self, userid: int, bank: str, queue: str, size: tuple[int, int], shape: int, waits: bool) -> None:
        self.ids += 1
        request = Request(self.ids, userid, queue, bank, "*", *size, shape=shape)
        if self.policy.refusal(request):
            return
        job = self.jobs[self.ids] = Job(request)
        self.policy.added(request)
        holds = self.policy.holds(request)
        names = ["max-run-jobs-queue", "max-sched-jobs-queue-limit", "max-sched-nodes-queue-limit"]
        names += ["max-sched-cores-queue-limit", "max-resources-queue", "max-running-jobs-user-limit"]
        names += ["max-sched-jobs-user-limit", "max-resources-user-limit"]
        assert holds == [name for name in names if not self.fits(name, job, [])]
        job.dependencies = [*holds, *["other"] * waits]
        if holds:
            self.held.append(job)
        self.advance(job)

    def some(self, data: st.DataObject, *states: int) -> Job | None:
        found = [job for job in self.jobs.values() if job.state in states]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data())
    def satisfy(self, data: st.DataObject) -> None:
        """A dependency on another job is met."""
        job = self.some(data, DEPEND)
        if job is not None and "other" in job.dependencies:
            job.dependencies.remove("other")
            self.advance(job)

    @rule(data=st.data(), count=st.integers(1, 4))
    def start(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            job = self.some(data, SCHED)
            if job is not None:
                self.allocate(job)

    def allocate(self, job: Job) -> None:
        if not job.is_asked or job.urgency == 0:
            return
        if limit := self.policy.may_start(job.request):
            assert not self.at_submit
            assert limit in self.policy.waits_for(job.request.id)
            job.is_asked = False
            return
        job.state, job.is_asked = RUN, False
        if not self.at_submit:
            assert not self.exceeded(job, RUN)
        mine = job.request
        expected = self.expected(mine.userid, mine.bank)
        self.follow(self.policy.entered(mine, RUN), expected)

    @rule(data=st.data(), count=st.integers(1, 3))
    def end(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            job = self.some(data, RUN)
            if job is not None:
                self.finish(job)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.some(data, DEPEND, PRIORITY, SCHED)
        if job is not None:
            self.finish(job)

    def finish(self, job: Job) -> None:
        mine = job.request
        del self.jobs[mine.id]
        if job in self.held:
            self.held.remove(job)
        expected = self.expected(mine.userid, mine.bank)
        self.follow(self.policy.entered(mine, INACTIVE), expected)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        job = self.some(data, RUN)
        if job is not None:
            job.state = PRIORITY
            mine = job.request
            self.follow(self.policy.entered(mine, PRIORITY), self.expected(mine.userid, mine.bank))
            self.prioritize(job)

    @rule(data=st.data(), urgency=st.sampled_from([0, 16, 17, 31]))
    def urge(self, data: st.DataObject, urgency: int) -> None:
        job = self.some(data, PRIORITY, SCHED)
        if job is not None:
            job.urgency = urgency
            self.prioritize(job)
            self.follow([], None)

    @rule(data=st.data(), key=st.sampled_from(sorted(KEYS)))
    def update(self, data: st.DataObject, key: str) -> None:
        """A pending job goes to another queue or bank, back to PRIORITY if it was in SCHED."""
        job = self.some(data, DEPEND, PRIORITY, SCHED)
        value = data.draw(st.sampled_from(QUEUES[1:] if key.endswith("queue") else BANKS))
        if job is None or self.policy.update_refusal(job.request, key, value):
            return
        old, job.request = job.request, replace(job.request, **{KEYS[key]: value})
        job.is_asked = False
        self.follow(self.policy.updated(old, job.request), None)
        if job.state == SCHED:
            job.state = PRIORITY
            self.follow(self.policy.entered(job.request, PRIORITY), None)
        if job.state == PRIORITY:
            self.prioritize(job)

    @rule(user=st.sampled_from(USERS), bank=st.sampled_from(BANKS), limits=ASSOCIATION, now=st.booleans())
    def change_association(self, user: int, bank: str, limits: dict[str, int], now: bool) -> None:
        self.rows[user, bank] |= limits
        self.policy.rec_update([self.rows[user, bank]])
        self.is_current = now
        if now:
            self.reprioritize()

    @rule(name=st.sampled_from(["q", "r"]), limits=QUEUE, now=st.booleans())
    def change_queue(self, name: str, limits: dict[str, int], now: bool) -> None:
        self.queues[name] |= limits
        self.policy.rec_q_update([*self.queues.values()])
        self.is_current = now
        if now:
            self.reprioritize()

    def reprioritize(self) -> None:
        for job in list(self.jobs.values()):
            if job.state in (PRIORITY, SCHED):
                self.prioritize(job)
        expected = [release for user, bank in self.rows for release in self.expected(user, bank)]
        releases = self.policy.reprioritize()
        if self.at_submit:
            assert sorted(releases) == sorted(expected)
        self.follow(releases, None)

    @rule()
    def reload(self) -> None:
        self.load()
        for job in sorted(self.jobs.values(), key=lambda job: (-job.state, job.request.id)):
            self.policy.count_active(job.request, job.state, job.dependencies)  # type: ignore[arg-type]
            job.is_asked = job.state == SCHED
        self.is_current = True
        self.held.sort(key=lambda job: job.request.id)
        for job in list(self.jobs.values()):
            if job.state == PRIORITY:
                self.prioritize(job)

    # What holds.

    @invariant()
    def counts_are_those_of_the_jobs(self) -> None:
        for user in self.policy.query()["mf_priority_map"]:
            for bank in user["banks"]:
                jobs = [
                    job
                    for job in self.jobs.values()
                    if (job.request.userid, job.request.bank) == (user["userid"], bank["bank_name"])
                ]
                used = Used(jobs)
                assert bank["cur_active_jobs"] == len(jobs)
                assert (bank["cur_run_jobs"], bank["cur_sched_jobs"]) == (used.jobs[RUN], used.jobs[SCHED])
                assert (bank["cur_nodes"], bank["cur_cores"]) == (used.nodes[RUN], used.cores[RUN])
                for queue, usage in bank["queue_usage"].items():
                    there = Used(job for job in jobs if job.request.queue == queue)
                    sched = (there.jobs[SCHED], there.nodes[SCHED], there.cores[SCHED])
                    assert (usage["cur_sched_jobs"], usage["cur_sched_nodes"], usage["cur_sched_cores"]) == sched
                    run = (there.jobs[RUN], there.nodes[RUN]) if queue else (0, 0)
                    assert (usage["cur_run_jobs"], usage["cur_nodes"]) == run
                held = {str(job.request.id): job.dependencies for job in jobs if job in self.held}
                assert {jobid: job["deps"] for jobid, job in bank["held_jobs"].items()} == {
                    jobid: [name for name in names if name != "other"] for jobid, names in held.items()
                }

    @invariant()
    def no_job_waits_for_another_one_that_got_no_resources(self) -> None:
        """A job that could start now is asked for, or another one with the same request is."""

        def needs(job: Job) -> Any:
            return replace(job.request, id=0)

        asked = [needs(job) for job in self.jobs.values() if job.is_asked and job.urgency > 0]
        for job in self.jobs.values():
            if self.is_current and job.state == SCHED and not job.is_asked and job.urgency > 0:
                assert self.policy.waits_for(job.request.id) or needs(job) in asked

    def teardown(self) -> None:
        """Each job runs in the end, one at a time, when all fit but no two of them together."""
        if not hasattr(self, "jobs"):
            return
        least = {"max_running_jobs": 1, "max_nodes": 4, "max_cores": 8, "max_sched_jobs": 1}
        for row in self.rows.values():
            row |= least
        for queue in self.queues.values():
            queue |= {"max_running_jobs": 1, "max_nodes_per_assoc": 4, "max_nodes": 4, "max_cores": 8}
        self.policy.rec_update([*self.rows.values()])
        self.policy.rec_q_update([*self.queues.values()])
        for job in list(self.jobs.values()):
            job.urgency = 16
            if "other" in job.dependencies:
                job.dependencies.remove("other")
                self.advance(job)
        self.reprioritize()
        while self.jobs:
            before = len(self.jobs)
            for job in list(self.jobs.values()):
                if job.state == SCHED:
                    self.allocate(job)
            for job in list(self.jobs.values()):
                if job.state == RUN:
                    self.finish(job)
            assert len(self.jobs) < before, {
                jobid: (job.state, self.policy.waits_for(jobid)) for jobid, job in self.jobs.items()
            }


TestLives = pytest.mark.soak(Lives.TestCase)
TestLives.settings = settings(max_examples=size("limited_lives"), stateful_step_count=40, deadline=None)
