"""Members of the tree that stop, die and come back; the lead notices, says so, and uses them again."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from bootstrapped import Cluster, cluster, until
from instance import FLUX
from terminal import Terminal


def hostnames(brokers: Cluster, nodes: int) -> int:
    """How many lines a job on `nodes` nodes prints."""
    return len(brokers.flux("run", f"-N{nodes}", "hostname").stdout.splitlines())


def slow(brokers: Cluster) -> str:
    """The torpid hosts."""
    return brokers.flux("resource", "status", "-s", "torpid", "-no", "{nodelist}").stdout.strip()


def start(brokers: Cluster, size: int) -> None:
    for rank in range(1, size):
        brokers.broker(rank)
    brokers.lead()
    until(lambda: brokers.up() == set(range(size)), "all resources are up")


def test_a_killed_follower_that_is_started_again_is_used_again():
    with cluster(3) as brokers:
        start(brokers, 3)
        for _ in range(2):
            brokers.brokers[2].kill()
            brokers.brokers[2].wait()
            until(lambda: brokers.health() == ("degraded", {1: "full", 2: "lost"}), "the loss is noticed")
            until(lambda: brokers.down() == {2}, "its resources are down")
            assert hostnames(brokers, 2) == 2
            brokers.broker(2)
            until(lambda: brokers.up() == {0, 1, 2}, "the resources are up again")
            assert brokers.health() == ("full", {1: "full", 2: "full"})
            assert hostnames(brokers, 3) == 3
        assert brokers.finish() == {0: 0, 1: 0, 2: 0}
        brokers.until_nothing_is_left()


def test_a_subtree_comes_back_below_a_killed_router():
    """With rank 1 goes rank 3 below it: it says why it leaves, and both come back."""
    with cluster(5, "tbon.topo=kary:2") as brokers:
        start(brokers, 5)
        brokers.brokers[1].kill()
        until(lambda: brokers.down() == {1, 3, 4}, "the subtree is down")
        for rank in (3, 4):
            assert brokers.brokers[rank].wait(60) == 1
            assert "lost the parent broker: connection closed" in brokers.log(rank)
        assert hostnames(brokers, 2) == 2
        for rank in (3, 1, 4):
            brokers.broker(rank)
        until(lambda: brokers.up() == set(range(5)), "all resources are up again")
        until(lambda: brokers.health()[0] == "full", "the tree is full again")
        assert hostnames(brokers, 5) == 5
        assert brokers.finish() == dict.fromkeys(range(5), 0)
        brokers.until_nothing_is_left()


def test_a_job_on_a_killed_follower_ends_with_a_node_failure_and_the_next_one_runs():
    with cluster(2) as brokers:
        start(brokers, 2)
        job = brokers.flux("submit", "-N2", "sleep", "300").stdout.strip()
        brokers.flux("job", "wait-event", job, "start")
        brokers.brokers[1].kill()
        assert brokers.flux("job", "wait-event", job, "clean").returncode == 0
        log = brokers.flux("job", "eventlog", job).stdout
        assert re.search('type="node-failure" severity=0 note="lost contact with job shell on broker .* .rank 1.', log)
        waits = brokers.flux("submit", "-N2", "hostname").stdout.strip()
        brokers.broker(1)
        assert len(brokers.flux("job", "attach", waits).stdout.splitlines()) == 2
        assert brokers.finish() == {0: 0, 1: 0}
        brokers.until_nothing_is_left()


EXEC_AND_PING = (("exec", "-nr1-2", "true"), ("ping", "-c1", "2"))


def test_a_stopped_follower_is_torpid_until_it_goes_on():
    with cluster(3, "tbon.torpid_min=0.2s") as brokers:
        start(brokers, 3)
        assert brokers.health()[0] == "full"
        assert brokers.flux("setattr", "tbon.torpid_max", "1s").returncode == 0
        os.kill(brokers.pid(2), signal.SIGSTOP)
        until(lambda: brokers.health() == ("degraded", {1: "full", 2: "torpid"}), "it is torpid")
        until(lambda: slow(brokers) == "fake2", "nothing new is given to it")
        assert brokers.flux("resource", "list", "-s", "down", "-no", "{nodelist}").stdout == "fake2\n"
        job = brokers.flux("submit", "-N3", "true").stdout.strip()
        # Who waits for it at a terminal is told so.
        exec_, ping = (Terminal([FLUX, *line], FLUX_URI=brokers.uri) for line in EXEC_AND_PING)
        exec_.expect("flux-exec: waiting for rank 2 (`flux overlay status` shows which are online)")
        ping.expect("flux-ping: waiting for 2!broker.ping (`flux overlay status` shows which brokers are online)")
        os.kill(brokers.pid(2), signal.SIGCONT)
        assert (exec_.wait(), ping.wait()) == (0, 0)
        until(lambda: brokers.health() == ("full", {1: "full", 2: "full"}), "it is heard again")
        until(lambda: slow(brokers) == "", "it is lively")
        assert brokers.flux("job", "status", job).returncode == 0
        assert hostnames(brokers, 3) == 3
        assert "overlay.err[0]: rank 2 (fake2) is torpid: no message for 1.000s" in brokers.log(0)
        assert "overlay.err[0]: rank 2 (fake2) is not torpid any more" in brokers.log(0)
        assert brokers.finish() == {0: 0, 1: 0, 2: 0}


def test_a_follower_that_stands_still_longer_than_its_connection_may_is_not_lost():
    with cluster(2, "tbon.tcp_user_timeout=1s") as brokers:
        start(brokers, 2)
        job = brokers.flux("submit", "-N2", "sh", "-c", "sleep 4; hostname").stdout.strip()
        brokers.flux("job", "wait-event", job, "start")
        with brokers.handle() as handle:
            os.kill(brokers.pid(1), signal.SIGSTOP)
            waiting = handle.rpc("rexec.list", {}, nodeid=1)
            with pytest.raises(TimeoutError):
                waiting.get(5)
            os.kill(brokers.pid(1), signal.SIGCONT)
            assert waiting.get(60)["rank"] == 1
        assert len(brokers.flux("job", "attach", job).stdout.splitlines()) == 2
        assert "lost" not in brokers.log(0)
        assert brokers.finish() == {0: 0, 1: 0}


def test_a_follower_that_is_killed_is_lost_and_its_rank_may_return():
    with cluster(2) as brokers:
        start(brokers, 2)
        with brokers.handle() as handle:
            os.kill(brokers.pid(1), signal.SIGSTOP)
            waiting = handle.rpc("rexec.list", {}, nodeid=1)
            brokers.brokers[1].kill()
            with pytest.raises(OSError) as lost:
                waiting.get(60)
            assert lost.value.errno == errno.EHOSTUNREACH
        until(lambda: brokers.health() == ("degraded", {1: "lost"}), "it is lost")
        brokers.broker(1)
        until(lambda: brokers.up() == {0, 1}, "it is back")
        assert re.search(
            # Which of the two is noticed first is the machine's business.
            r"overlay\.err\[0\]: rank 1 \(fake1\) was lost: (?:connection closed|unreachable), "
            r"it was last heard \d+\.\d s ago\n(.*\n)*"
            r".*overlay\.err\[0\]: rank 1 \(fake1\) is back, \d+\.\d s after it was lost\n",
            brokers.log(0),
        )
        assert hostnames(brokers, 2) == 2
        assert brokers.finish() == {0: 0, 1: 0}
        brokers.until_nothing_is_left()


def test_an_instance_in_a_job_goes_on_without_a_node_that_it_can_lose():
    with cluster(4) as brokers:
        start(brokers, 4)
        job = brokers.flux("alloc", "--bg", "-N3", "-n3").stdout.strip()
        assert brokers.flux("proxy", job, "flux", "run", "-N3", "hostname").returncode == 0
        assert brokers.flux("proxy", job, "flux", "getattr", "broker.critical-ranks").stdout == "0\n"
        last = brokers.flux("jobs", "-no", "{ranks}", job).stdout.strip(" []\n").rpartition("-")[2]
        brokers.brokers[int(last)].kill()
        until(lambda: "node-failure" in brokers.flux("job", "eventlog", job).stdout, "its loss is told")
        until(lambda: "lost" in brokers.flux("proxy", job, "flux", "overlay", "status").stdout, "inside, too")
        assert len(brokers.flux("proxy", job, "flux", "run", "-N2", "hostname").stdout.splitlines()) == 2
        brokers.flux("cancel", job)
        brokers.flux("job", "wait-event", job, "clean")
        assert brokers.finish()[0] == 0
        brokers.until_nothing_is_left()


def test_a_certificate_that_is_not_the_leads_is_named_by_both() -> None:
    with cluster(2, "broker.quorum=1") as brokers:
        brokers.lead()
        os.unlink(brokers.cert)
        subprocess.run([FLUX, "keygen", brokers.cert], check=True, env=brokers.env)
        assert brokers.broker(1).wait(60) == 1
        said = f"ended the handshake: no broker with the certificate of {brokers.cert} answers there"
        assert f"lost the parent broker: ipc://{brokers.folder}/fake0 {said}" in brokers.log(1)
        refused = (
            f"connection from this host refused: its certificate is not that of {brokers.cert}, or it is not a broker"
        )
        until(lambda: f"overlay.warning[0]: {refused}" in brokers.flux("dmesg").stdout, "the lead says so")
        assert brokers.finish() == {0: 0}


def test_a_job_that_asks_for_it_is_queued_again_when_a_follower_is_lost_and_runs_when_one_is_back():
    with cluster(3) as brokers:
        start(brokers, 3)
        script = (
            f"cd {brokers.folder}; test -e again && exec echo again; echo first; touch first.$FLUX_TASK_RANK; sleep 300"
        )
        job = brokers.flux("submit", "-N3", "--setattr=system.requeue=true", "sh", "-c", script).stdout.strip()
        # shell.start comes before a task has looked for the file.
        until(lambda: len(list(Path(brokers.folder).glob("first.*"))) == 3, "all tasks are in their first run")
        Path(brokers.folder, "again").touch()
        attached = brokers.attach(job)
        brokers.brokers[2].kill()
        brokers.brokers[2].wait()
        brokers.flux("job", "wait-event", job, "requeue")
        assert brokers.flux("jobs", "-no", "{state}", job).stdout == "SCHED\n"
        brokers.broker(2)
        out, errors = attached.communicate(timeout=60)
        assert attached.returncode == 0, errors
        assert out.splitlines().count("again") == 3
        assert "lost contact with job shell on broker fake2 (rank 2): queued again" in errors
        assert brokers.flux("jobs", "-no", "{status}", job).stdout == "COMPLETED\n"


def test_a_lost_follower_is_drained_until_it_is_back_and_one_that_leaves_in_order_is_not():
    """Also below a broker that is lost itself, of which nobody hears any more."""
    with cluster(5, "tbon.topo=kary:2") as brokers:
        with open(brokers.config, "a") as config:
            config.write("[headrace]\ndrain-lost = true\n")
        start(brokers, 5)
        brokers.brokers[2].terminate()
        assert brokers.brokers[2].wait(60) == 0
        brokers.brokers[1].kill()
        until(lambda: brokers.down() == {1, 2, 3, 4}, "both subtrees are down")
        drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}").stdout
        assert drained == "1,3-4 broker was lost\n"
        for rank in (1, 2, 3, 4):
            brokers.brokers[rank].wait(60)
        for rank in (1, 2, 3, 4):
            brokers.broker(rank)
        until(lambda: brokers.up() == set(range(5)), "all resources are up again")
        assert brokers.flux("resource", "drain", "-no", "{ranks}").stdout == ""
