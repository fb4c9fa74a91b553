"""A network that fails between two brokers: the lead knows in time, jobs end with the reason, nothing is left."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from bootstrapped import Cluster, cluster, until
from instance import FLUX
from netns import Pair, pair

from waiting import stays

LIMIT = 2.0


@pytest.fixture
def hosts() -> Iterator[Pair]:
    with pair() as made:
        yield made


def start(brokers: Cluster, hosts: Pair) -> None:
    brokers.lead(prefix=hosts.on(0))
    brokers.broker(1, prefix=hosts.on(1))
    until(lambda: brokers.up() == {0, 1}, "both are up")


def endpoints(hosts: Pair) -> dict[str, str]:
    there = f"tcp://{hosts.address(0)}:%p"
    return {"default_bind": there, "default_connect": there}


@pytest.mark.parametrize("ipv6", [True, False])
def test_a_lead_that_binds_an_interface_by_name_is_found_at_its_ipv4_address(hosts: Pair, ipv6: bool) -> None:
    if not ipv6:
        hosts.only_ipv4()
    with cluster(2, "broker.quorum=1", **{**endpoints(hosts), "default_bind": "tcp://cable:%p"}) as brokers:
        start(brokers, hosts)
        assert brokers.flux("getattr", "tbon.endpoint").stdout == f"tcp://{hosts.address(0)}:8050\n"
        assert brokers.finish() == {0: 0, 1: 0}


def test_the_lead_names_the_address_of_a_broker_with_another_certificate(hosts: Pair) -> None:
    with cluster(2, "broker.quorum=1", **endpoints(hosts)) as brokers:
        brokers.lead(prefix=hosts.on(0))
        os.unlink(brokers.cert)
        subprocess.run([FLUX, "keygen", brokers.cert], check=True, env=brokers.env)
        assert brokers.broker(1, prefix=hosts.on(1)).wait(60) == 1
        text = f"connection from {hosts.address(1)} refused: its certificate is not that of {brokers.cert}"
        until(lambda: text in brokers.flux("dmesg").stdout, "the lead says so")
        assert brokers.finish() == {0: 0}


def test_a_pulled_cable_ends_the_job_and_the_follower_and_both_can_start_again(hosts: Pair) -> None:
    attrs = ("broker.quorum=1", f"tbon.tcp_user_timeout={LIMIT}s")
    with cluster(2, *attrs, **endpoints(hosts)) as brokers:
        start(brokers, hosts)
        job = brokers.flux("submit", "-N2", "sleep", "300").stdout.strip()
        brokers.flux("job", "wait-event", job, "start")
        hosts.link(up=False)
        # The default limit is 20 s; the rest is for a busy machine.
        until(lambda: brokers.health() == ("degraded", {1: "lost"}), "the lead notices", LIMIT + 5)
        assert brokers.flux("job", "wait-event", job, "clean").returncode == 0
        log = brokers.flux("job", "eventlog", job).stdout
        assert re.search('type="node-failure" severity=0 note="lost contact with job shell on broker .* .rank 1.', log)
        until(lambda: brokers.down() == {1}, "its resources are down")
        assert len(brokers.flux("run", "-N1", "hostname").stdout.splitlines()) == 1
        hosts.link(up=True)
        assert brokers.brokers[1].wait(60) == 1
        assert "lost the parent broker: connection closed" in brokers.log(1)
        brokers.broker(1, prefix=hosts.on(1))
        until(lambda: brokers.up() == {0, 1}, "both are up again")
        assert len(brokers.flux("run", "-N2", "hostname").stdout.splitlines()) == 2
        assert brokers.finish() == {0: 0, 1: 0}
        brokers.until_nothing_is_left()


def test_a_short_interruption_costs_nothing(hosts: Pair) -> None:
    with cluster(2, "broker.quorum=1", "tbon.tcp_user_timeout=10s", **endpoints(hosts)) as brokers:
        start(brokers, hosts)
        job = brokers.flux("submit", "-N2", "sh", "-c", "sleep 2; hostname").stdout.strip()
        brokers.flux("job", "wait-event", job, "start")
        hosts.link(up=False)
        time.sleep(1.0)
        hosts.link(up=True)
        assert len(brokers.flux("job", "attach", job).stdout.splitlines()) == 2
        assert brokers.health() == ("full", {1: "full"})
        assert brokers.finish() == {0: 0, 1: 0}
        brokers.until_nothing_is_left()


def test_a_follower_that_starts_before_its_lead_can_be_reached_joins_later(hosts: Pair) -> None:
    with cluster(2, "broker.quorum=1", **endpoints(hosts)) as brokers:
        hosts.link(up=False)
        brokers.broker(1, prefix=hosts.on(1))
        brokers.lead(prefix=hosts.on(0))
        assert brokers.health() == ("partial", {1: "offline"})
        stays(lambda: brokers.brokers[1].poll() is None, 0.5)
        hosts.link(up=True)
        until(lambda: brokers.up() == {0, 1}, "it joins")
        assert len(brokers.flux("run", "-N2", "hostname").stdout.splitlines()) == 2
        assert brokers.finish() == {0: 0, 1: 0}
        brokers.until_nothing_is_left()
