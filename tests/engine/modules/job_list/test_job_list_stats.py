"""Counts of jobs by state, result and queue: always those that counting them anew would give."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.engine.modules.job_list.stats import Stats
from headrace.formats.spec.job_state import CANCELED, CLEANUP, COMPLETED, DEPEND, INACTIVE, NEW, RUN, SCHED, TIMEOUT

_NEXT = {0: [DEPEND], DEPEND: [SCHED, CLEANUP], SCHED: [RUN, CLEANUP], RUN: [CLEANUP], CLEANUP: [INACTIVE]}
_NAMES = {DEPEND: "depend", SCHED: "sched", RUN: "run", CLEANUP: "cleanup", INACTIVE: "inactive"}
_RESULTS = {COMPLETED: "successful", CANCELED: "canceled", TIMEOUT: "timeout", 2: "failed"}
queues = st.sampled_from([None, "batch", "debug"])


class Counting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stats = Stats()
        self.stats.configure({"queues": {"batch": {}, "idle": {}}})
        self.jobs: list[Any] = []
        self.purged: Counter[str | None] = Counter()

    @rule(queue=queues)
    def new(self, queue: str | None) -> None:
        job = SimpleNamespace(state=DEPEND, queue=queue, result=0)
        self.jobs.append(job)
        self.stats.move(job, NEW)  # type: ignore[arg-type]

    @rule(choice=st.integers(0, 99), way=st.integers(0, 1), result=st.sampled_from(sorted(_RESULTS)))
    def go_on(self, choice: int, way: int, result: int) -> None:
        going = [job for job in self.jobs if job.state != INACTIVE]
        if going:
            job = going[choice % len(going)]
            old, ways = job.state, _NEXT[job.state]
            job.state = ways[way % len(ways)]
            job.result = result if job.state == INACTIVE else 0
            self.stats.move(job, old)

    @rule(choice=st.integers(0, 99), queue=queues)
    def requeue(self, choice: int, queue: str | None) -> None:
        going = [job for job in self.jobs if job.state != INACTIVE]
        if going:
            job = going[choice % len(going)]
            old, job.queue = job.queue, queue
            self.stats.requeue(job, old)

    @rule()
    def purge(self) -> None:
        gone = [job for job in self.jobs if job.state == INACTIVE]
        self.jobs = [job for job in self.jobs if job.state != INACTIVE]
        for job in gone:
            self.purged[job.queue] += 1
            self.stats.purge(job)

    @invariant()
    def counts_are_right(self) -> None:
        shown = self.stats.as_object()
        assert [queue["name"] for queue in shown["queues"]] == sorted({queue["name"] for queue in shown["queues"]})
        assert {"batch", "idle"} <= {queue["name"] for queue in shown["queues"]}
        self.check(shown, self.jobs, self.purged.total())
        for queue in shown["queues"]:
            mine = [job for job in self.jobs if job.queue == queue["name"]]
            self.check(queue, mine, self.purged[queue["name"]])

    def check(self, shown: dict[str, Any], jobs: list[Any], purged: int) -> None:
        states = Counter(_NAMES[job.state] for job in jobs)
        assert {name: n for name, n in shown["job_states"].items() if n and name != "total"} == states
        assert shown["job_states"]["total"] == len(jobs)
        results = Counter(_RESULTS[job.result] for job in jobs if job.state == INACTIVE)
        assert {name: shown[name] for name in _RESULTS.values() if shown[name]} == results
        assert shown["inactive_purged"] == purged


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=40, stateful_step_count=25)
