"""Brokers that start late or again: they learn what the instance has come to, also from a parent that was later."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

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


def configuration(brokers: Cluster, rank: int) -> dict[str, Any]:
    with brokers.handle() as handle:
        found: dict[str, Any] = handle.rpc("config.get", {}, rank).get(PATIENCE)
    return found


def start_again(brokers: Cluster, *ranks: int) -> None:
    for rank in ranks:
        brokers.brokers[rank].kill()
        brokers.brokers[rank].wait()
    for rank in ranks:
        brokers.broker(rank)
    until(lambda: all(state(brokers, rank) == "run" for rank in ranks), "they run again")


def test_brokers_that_are_started_again_have_the_leaders_configuration_and_their_own_place() -> None:
    with cluster(3, "tbon.topo=kary:1", "broker.quorum=1") as brokers:
        brokers.lead()
        brokers.broker(1)
        brokers.broker(2)
        until(lambda: state(brokers, 2) == "run", "all run")
        first = configuration(brokers, 0)
        text = Path(brokers.config).read_text().replace("[bootstrap]", "[bootstrap]\nenable_ipv6 = true")
        Path(brokers.config).write_text(f"{text}\n[heartbeat]\nperiod = '7s'\n")
        own = first["bootstrap"] | {"enable_ipv6": True}
        # Nothing was changed at run time: a broker has what its file says.
        start_again(brokers, 2)
        assert configuration(brokers, 2) == first | {"bootstrap": own, "heartbeat": {"period": "7s"}}
        changed = first | {"access": {"allow-guest-user": True}, "heartbeat": {"period": "3s"}}
        with brokers.handle() as handle:
            handle.rpc("config.load", changed).get(PATIENCE)
        until(lambda: configuration(brokers, 2) == changed | {"bootstrap": own}, "those that run follow")
        start_again(brokers, 2, 1)
        for rank in (1, 2):
            assert configuration(brokers, rank) == changed | {"bootstrap": own}
            # Its modules were loaded with it.
            with brokers.handle() as handle:
                assert handle.rpc("heartbeat.stats-get", {}, rank).get(PATIENCE)["period"] == 3
        assert brokers.finish() == {0: 0, 1: 0, 2: 0}
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


def test_a_broker_that_leaves_before_it_has_joined_takes_those_below_it_along() -> None:
    with cluster(4, *_TREE, *_LOUD) as brokers:
        brokers.broker(1)
        brokers.broker(3)
        until(lambda: "a hello waits" in brokers.log(1), "rank 1 has its hello")
        os.kill(brokers.pid(1), signal.SIGTERM)
        assert [brokers.brokers[rank].wait(PATIENCE) for rank in (1, 3)] == [0, 0]
        brokers.until_nothing_is_left()
