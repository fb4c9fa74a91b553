"""Random histories of jobs in which the queue is killed with records that are not written yet: the database has each
job once, as its FluxJob says, and nothing that has gone is left in it as if it ran.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster import Cluster
from stored import contents, opened

from headrace.cluster_queue.model.snapshot import Change, workload_of
from headrace.cluster_queue.names import FLUXJOBS
from headrace.cluster_queue.store.database import Address, Database
from headrace.cluster_queue.store.writing import write, write_all
from headrace.k8s.objects.kinds import JOBS, PODS, Kind
from headrace.k8s.objects.timestamps import seconds_of
from sizes import size


class Recorded(Cluster):
    """A cluster whose records are written by a process that dies with the core. `told` are the workloads whose FluxJob
    has ever had a status."""

    def __init__(self, database: Database, rng: random.Random, **more: Any) -> None:
        self.database, self.rng = database, rng
        self.told: set[str] = set()
        self._begun_at = 0
        super().__init__(**more)

    def restart(self) -> None:
        super().restart()
        self._begun_at = len(self.records)

    def put(self, kind: Kind, item: dict[str, Any]) -> dict[str, Any]:
        if kind == FLUXJOBS and item.get("status"):
            self.told.add(workload_of(item))
        return super().put(kind, item)

    def store(self) -> None:
        """Have the process write: of what the one before had not written, only a part."""
        if self._begun_at >= 0:
            before, self.records = self.records[: self._begun_at], self.records[self._begun_at :]
            write(self.database, before[: self.rng.randint(0, len(before))])
            write(self.database, self.records)
            write_all(self.database, self.queue.chronicle.all_now(self.now), self.now)
        else:
            write(self.database, self.records)
        self.records, self._begun_at = [], -1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(size("store_histories")))
def test_a_queue_that_is_killed_tells_of_each_job_once(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with opened(Address(f"sqlite:{tmp_path}/store")) as database:
        cluster = Recorded(database, rng, nodes=3, cores=4, policy=rng.choice(("fcfs", "easy")))
        for turn in range(50):
            if rng.random() < 0.3:
                cluster.crash_at, cluster.crash_after = rng.randrange(6), rng.random() < 0.5
            _happens(cluster, rng, f"w{turn}")
            cluster.settle(rng.choice((0, 1, 10, 100)))
            if rng.random() < 0.6:
                cluster.store()
        cluster.crash_at = None
        cluster.settle(5)
        cluster.store()
        _agree(cluster, database)
        # A process that begins has nothing to add.
        before = _but_versions(database)
        cluster.restart()
        begun = cluster.queue.step(
            [Change(cluster.kinds[kind], one) for (kind, *_), one in cluster.items.items()], cluster.now
        )
        write(database, begun.records)
        write_all(database, cluster.queue.chronicle.all_now(cluster.now), cluster.now)
        assert _but_versions(database) == before


def _but_versions(database: Database) -> Any:
    """All rows. A job's version rises with its position, too."""
    found = contents(database)
    return {**found, "jobs": [(uid, *rest) for uid, _, *rest in found["jobs"]]}


def _happens(cluster: Cluster, rng: random.Random, name: str) -> None:
    choice = rng.random()
    if choice < 0.3:
        pods = rng.randint(1, 4)
        cluster.job(name, pods, rng.randint(1, 3), completions=rng.randint(pods, 6))
    elif choice < 0.5:
        cluster.pod(name, rng.randint(0, 4))
    elif choice < 0.8:
        running = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]
        if running:
            cluster.end(rng.choice(running), rng.choice(("Succeeded", "Failed")))
    elif choice < 0.9 and cluster.all(JOBS):
        job = rng.choice(cluster.all(JOBS))
        job["spec"]["suspend"] = not job["spec"].get("suspend")
        cluster.put(JOBS, job)
    elif found := [*cluster.all(JOBS), *(pod for pod in cluster.all(PODS) if "ownerReferences" not in pod["metadata"])]:
        gone = rng.choice(found)
        cluster.drop(JOBS if "template" in gone["spec"] else PODS, gone)


def _agree(cluster: Recorded, database: Database) -> None:
    rows = {str(uid): row for uid, *row in database.rows("SELECT uid, state, started_at, ended_at, nodes FROM jobs")}
    there = {workload_of(one): one["status"] for one in cluster.all(FLUXJOBS) if one.get("status")}
    assert there.keys() <= rows.keys() <= cluster.told
    for uid, (state, started_at, ended_at, nodes) in rows.items():
        used = database.rows("SELECT since, until FROM usage WHERE uid = :uid ORDER BY since", {"uid": uid})
        ends = [until for _, until in used]
        if uid in there:
            told = there[uid]
            assert state == told["state"]
            assert ended_at == (seconds_of(told["endedAt"]) if "endedAt" in told else None)
            if "startedAt" in told:
                assert started_at <= seconds_of(told["startedAt"])
                assert nodes == told["nodes"]
        else:
            assert state in ("Finished", "Failed", "Withdrawn")
            assert ended_at is not None
        # One after the other, and all over when the job is.
        assert all(until is not None and until <= since for until, (since, _) in zip(ends, used[1:]))
        assert all(until is not None and until >= since for since, until in used) or state in ("Released", "Running")
        names = [row[0] for row in database.rows("SELECT name FROM events WHERE uid = :uid", {"uid": uid})]
        assert names.count("submit") == 1
        assert names.count("finish") == (state in ("Finished", "Failed"))
