"""What clients behind a lost member were waiting for: the services that answer them let it go with the member."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from bootstrapped import Cluster, cluster, until

from headrace.wire.client.handle import Handle

PROBE = str(Path(__file__).with_name("probe_module.py"))


def follower(brokers: Cluster, rank: int) -> Handle:
    """A connection to the broker of `rank`."""
    with brokers.handle() as handle:
        return Handle(handle.rpc("attr.get", {"name": "local-uri"}, nodeid=rank).get(60)["value"])


def waiting(brokers: Cluster) -> dict[str, object]:
    """What the lead's services hold for those who wait; the listener of job-list at the journal is always there."""
    with brokers.handle() as handle:

        def stats(service: str) -> dict[str, object]:
            body: dict[str, object] = handle.rpc(f"{service}.stats-get", {}).get(60)
            return body

        listeners = stats("job-manager")["journal"]
        assert isinstance(listeners, dict)
        return {
            "kvs-watch": stats("kvs-watch")["watchers"],
            "kvs": stats("kvs")["pending_requests"],
            "eventlog": stats("job-info")["watchers"],
            "job-stats": stats("job-list")["stats_watchers"],
            "journal": listeners["listeners"],
        }


NOTHING = {"kvs-watch": 0, "kvs": 0, "eventlog": 0, "job-stats": 0, "journal": 1}


@pytest.mark.parametrize("how", ["killed", "leaves"])
def test_watchers_behind_a_lost_member_are_let_go_by_every_service(how: str):
    # Rank 3 is below 1: what its clients ask passes through two brokers.
    with cluster(4, "tbon.topo=kary:2") as brokers:
        for rank in (1, 2, 3):
            brokers.broker(rank)
        brokers.lead()
        job = int(brokers.flux("job", "id", brokers.flux("submit", "sleep", "300").stdout.strip()).stdout)
        assert brokers.flux("module", "load", PROBE, "--exec").returncode == 0
        assert waiting(brokers) == NOTHING
        handles = []
        for rank in [1, 3] * 10:
            client = follower(brokers, rank)
            handles.append(client)
            streams = [
                client.stream("kvs-watch.lookup", {"key": "nowhere", "namespace": "primary", "flags": 12}),
                client.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0}),
                client.stream("job-list.job-stats", {}),
                client.stream("job-manager.events-journal", {}),
                client.stream("probe.ticks", {}),
            ]
            client.rpc("kvs.wait-version", {"rootseq": 1 << 30, "namespace": "primary"})
            for stream in streams[1:]:
                stream.get(60)
        until(lambda: waiting(brokers)["kvs"] == 20, "all wait")
        held = waiting(brokers)
        assert {held[name] for name in ("kvs-watch", "eventlog", "job-stats")} == {20}
        assert held["journal"] == 21
        probe = brokers.handle()
        assert probe.rpc("probe.tell").get(60)["left"] == 0
        brokers.brokers[1].send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        brokers.brokers[1].wait(60)
        until(lambda: waiting(brokers) == NOTHING, f"all is let go of: {waiting(brokers)}")
        # One in a process of its own hears it as well, once for each client.
        until(lambda: probe.rpc("probe.tell").get(60)["left"] == 20, "the module's process was told")
        probe.close()
        for client in handles:
            client.close()
        brokers.flux("cancel", "--all")
        assert brokers.finish()[0] == 0


def test_a_process_that_a_lost_members_client_had_started_elsewhere_ends():
    with cluster(3) as brokers:
        for rank in (1, 2):
            brokers.broker(rank)
        brokers.lead()
        client = follower(brokers, 1)
        cmd = {"cmdline": ["sleep", "300"], "cwd": "/", "env": {"PATH": os.environ["PATH"]}, "opts": {}, "channels": []}
        started = client.stream("rexec.exec", {"cmd": cmd, "flags": 0, "local_flags": 0}, nodeid=2).get(60)
        assert started["type"] == "started"
        brokers.brokers[1].kill()
        brokers.brokers[1].wait()
        with brokers.handle() as handle:
            until(
                lambda: handle.rpc("rexec.list", {}, nodeid=2).get(60)["procs"] == [], "the process at rank 2 is ended"
            )
        with pytest.raises(ProcessLookupError):
            os.kill(started["pid"], 0)
        client.close()
        assert brokers.finish() == {0: 0, 2: 0}


def test_a_client_that_leaves_ends_its_own_watches_through_the_tree_and_no_others():
    with cluster(3, "tbon.topo=kary:1") as brokers:
        for rank in (1, 2):
            brokers.broker(rank)
        brokers.lead()
        stays, goes = follower(brokers, 2), follower(brokers, 2)
        for client in (stays, goes):
            client.stream("job-list.job-stats", {}).get(60)
        until(lambda: waiting(brokers)["job-stats"] == 2, "both watch")
        goes.close()
        until(lambda: waiting(brokers)["job-stats"] == 1, "one is left")
        brokers.brokers[1].kill()
        brokers.brokers[1].wait()
        until(lambda: waiting(brokers) == NOTHING, "none is left")
        stays.close()
        assert brokers.finish()[0] == 0
