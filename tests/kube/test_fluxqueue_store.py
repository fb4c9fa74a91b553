"""The cluster queue's replicas and its store in PostgreSQL: leaders are killed, the database goes and comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubecluster import build, kwok
from kubecluster.cluster import Cluster, unmet
from kubecluster.errors import KubeError
from patience import until
from running_fluxqueue import Held, RunningFluxqueue, nodes_of_queues, pod_spec, running

import postgresql
from headrace.cluster_queue.names import FLUXQUEUE
from headrace.k8s.objects.timestamps import seconds_of
from headrace.programs.cluster_queue.install import Install
from sizes import SOAK, size
from waiting import stays

NODES = 4
# The leases of replicas.
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{Install().namespace}/leases/{FLUXQUEUE}"


class World(NamedTuple):
    """Two replicas whose jobs are pods that kwok plays, which end as soon as they run."""

    held: Held
    replicas: list[RunningFluxqueue]
    server: postgresql.Postgresql

    def submit(self, *names: str) -> None:
        for name in names:
            # A replica that is killed is no webhook until it is started again.
            until(lambda name=name: self._is_created(name))

    def _is_created(self, name: str) -> bool:
        template = {"metadata": {"annotations": {"headrace/exit": "0"}}, "spec": pod_spec("true", "4")}
        try:
            self.held.job(name, template=template, annotations={"fluxqueue/duration": "10m"})
        except KubeError as exc:
            assert "failed calling webhook" in str(exc), exc
            return False
        return True

    def fluxjobs(self) -> dict[str, dict[str, Any]]:
        return {one["spec"]["name"]: one.get("status") or {} for one in self.held.get("fluxjobs")["items"]}

    def finished(self) -> set[str]:
        return {name for name, status in self.fluxjobs().items() if status.get("state") == "Finished"}

    def lease(self) -> dict[str, Any]:
        return dict(self.held.cluster.api.get(_LEASE)["spec"])

    def leader(self) -> RunningFluxqueue | None:
        holder = self.lease()["holderIdentity"]
        pid = int(holder.split("_")[1]) if holder else 0
        return next((one for one in self.replicas if one.pid == pid), None)

    def history(self, *options: str) -> Any:
        """What `headrace fluxqueue history` says."""
        address = self.server.address
        command = [
            *(sys.executable, "-c", "from headrace.cli.main import headrace; raise SystemExit(headrace())"),
            *("fluxqueue", "history", "--store", address.url, "--store-password-file", address.password_file, "--json"),
        ]
        done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if unmet(0):
        pytest.skip(unmet(0))
    if not build.is_built("kwok"):
        pytest.skip("needs kwok: `make kube-tools` builds it")
    if postgresql.binaries() is None:
        pytest.skip("needs PostgreSQL: `make packages` installs it")
    cluster = Cluster.up(f"stored-{os.getpid()}", nodes=0)
    try:
        kwok.play(cluster, NODES, capacity={"cpu": "4", "memory": "64Gi", "pods": "110"})
        cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        until(lambda: cluster.api.get("/api/v1/namespaces/team/serviceaccounts")["items"])
        with postgresql.running() as server:
            store = "--store", server.address.url, "--store-password-file", server.address.password_file
            (tmp_path / "second").mkdir()
            with running(cluster, tmp_path, *store) as first:
                second = RunningFluxqueue(cluster, tmp_path / "second", *store)
                try:
                    second.start(leads=False)
                    until(lambda: nodes_of_queues(cluster) == {"default": NODES})
                    yield World(Held(cluster, "team"), [first, second], server)
                finally:
                    second.stop()
    finally:
        cluster.down()


@pytest.mark.soak
def test_jobs_run_once_and_are_in_the_history_once_whoever_is_killed(world: World) -> None:
    """Leaders are killed amid jobs, then the database is stopped amid jobs."""
    kills = size("leader_kills")
    names = [f"job-{index}" for index in range(size("queued_jobs"))]
    part = len(names) // (kills + 1)
    pauses = []
    for turn in range(kills):
        world.submit(*names[turn * part : (turn + 1) * part])
        leader = world.leader()
        assert leader is not None
        before = world.lease()
        leader.stop(signal.SIGKILL)
        leader.start(leads=False)
        until(lambda before=before: world.lease()["leaseTransitions"] > before["leaseTransitions"])
        after = world.lease()
        pauses.append(seconds_of(after["acquireTime"]) - seconds_of(before["renewTime"]))
        until(lambda: world.leader() is not None)
    print(f"the next leader after {max(pauses):.1f} s at most")
    # Beside other tests, a machine may take long for a request.
    assert max(pauses) < 20 or not SOAK
    world.submit(*names[kills * part :])
    # The database goes while jobs wait and run: they go on.
    until(lambda: len(world.finished()) > len(names) // 4)
    world.server.stop()
    late = [f"late-{index}" for index in range(20)]
    world.submit(*late)
    stays(lambda: len(world.fluxjobs()) >= len(names), size("outage_seconds"))
    until(lambda: world.finished() == {*names, *late})
    leader = world.leader()
    assert leader is not None
    assert leader.figure("store_connected") == 0
    assert leader.figure("queue_length") > 0
    world.server.start()
    until(lambda: leader.figure("store_connected") == 1 and leader.figure("queue_length") == 0)
    assert leader.figure("store_records_lost_total") == 0

    everything = sorted([*names, *late])
    for name in everything:
        assert len(world.held.pods_of(name)) == 1
        assert world.held.get("jobs", name)["status"]["succeeded"] == 1
    (line,) = world.history("--by", "namespace")
    assert (line["namespace"], line["jobs"], line["started"]) == ("team", len(everything), len(everything))
    assert line["states"] == {"Finished": len(everything)}
    statuses = world.fluxjobs()
    with postgresql.opened(world.server) as database:
        rows = database.rows("SELECT name, uid, started_at, ended_at, nodes FROM jobs ORDER BY name")
        assert [row[0] for row in rows] == everything
        for name, uid, started_at, ended_at, nodes in rows:
            told = statuses[name]
            assert (started_at, ended_at) == (seconds_of(told["startedAt"]), seconds_of(told["endedAt"])), name
            assert nodes == told["nodes"]
            found = database.rows("SELECT name FROM events WHERE uid = :uid AND name <> 'start'", {"uid": uid})
            assert sorted(row[0] for row in found) == ["alloc", "finish", "submit"], name
            assert len(database.rows("SELECT * FROM usage WHERE uid = :uid", {"uid": uid})) == 1
