"""Brokers that start late or again: they learn what the instance has come to, also from a parent that was later."""

from __future__ import annotations

import os
import signal

from bootstrapped import PATIENCE, Cluster, cluster, until

_LOUD = ("log-stderr-level=7", "log-stderr-mode=local")
_TREE = ("tbon.topo=kary:2", "broker.quorum=1")


def state(brokers: Cluster, rank: int) -> str:
    """The state of a broker, as it says itself; "" while it cannot be asked."""
    with brokers.handle() as handle:
        try:
            return str(handle.rpc("state-machine.get", {}, rank).get(PATIENCE)["state"])
        except OSError:
            return ""


def start_below_first(brokers: Cluster) -> None:
    """Start rank 3, and its parent, rank 1, while the leader stands still: what the leader has told, it told before."""
    os.kill(brokers.pid(0), signal.SIGSTOP)
    brokers.broker(3)
    brokers.broker(1)
    # It waits, or it went on with what its parent could say.
    until(lambda: "a hello waits" in brokers.log(1) or "parent-ready: join" in brokers.log(3), "rank 1 has its hello")
    os.kill(brokers.pid(0), signal.SIGCONT)


def test_a_broker_whose_parent_joins_after_it_runs_with_the_others() -> None:
    with cluster(4, *_TREE, *_LOUD) as brokers:
        brokers.lead()
        start_below_first(brokers)
        until(lambda: state(brokers, 1) == state(brokers, 3) == "run", "both run")
        assert brokers.finish() == {0: 0, 1: 0, 3: 0}
        brokers.until_nothing_is_left()


def test_a_broker_whose_parent_joins_after_it_ends_with_an_instance_that_ends() -> None:
    with cluster(4, *_TREE, *_LOUD) as brokers:
        brokers.lead()
        brokers.broker(2)
        until(lambda: state(brokers, 2) == "run", "rank 2 runs")
        # The leader's shutdown waits for it.
        os.kill(brokers.pid(2), signal.SIGSTOP)
        brokers.release()
        until(lambda: state(brokers, 0) == "shutdown", "the leader ends")
        start_below_first(brokers)
        assert [brokers.brokers[rank].wait(PATIENCE) for rank in (3, 1)] == [0, 0]
        os.kill(brokers.pid(2), signal.SIGCONT)
        assert [brokers.brokers[rank].wait(PATIENCE) for rank in (2, 0)] == [0, 0]
        brokers.until_nothing_is_left()
