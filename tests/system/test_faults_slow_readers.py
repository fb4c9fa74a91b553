"""Readers that do not read, tasks that print faster than anybody reads: memory is bounded, others are served."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster, cluster, until

from headrace.formats.spec import jobid
from headrace.formats.spec import message as m
from headrace.wire.client.handle import Handle

MIB = 1 << 20
# What brokers may grow by while many times as much passes through them.
SLACK = 24 * MIB
STDOUT_AND_STREAM = 1


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with cluster(2) as made:
        made.broker(1)
        made.lead()
        until(lambda: made.up() == {0, 1}, "both are up")
        yield made
        assert "Traceback" not in made.log(0) + made.log(1)


def printing(size: int) -> list[str]:
    """A command that prints so many MiB in lines of text as fast as it can."""
    return ["sh", "-c", f"yes {'0123456789' * 7} | head -c {size * MIB}"]


def peak(pid: int) -> int:
    """The most memory that a process had since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found.group(1)) << 10


def growth(brokers: Cluster, during: Callable[[], Any]) -> dict[int, int]:
    """By how much the brokers' memory grew at its highest."""
    before = {}
    for rank, process in brokers.brokers.items():
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        before[rank] = peak(process.pid)
    during()
    return {rank: peak(process.pid) - before[rank] for rank, process in brokers.brokers.items()}


def assert_bounded(grown: dict[int, int], slack: int = SLACK) -> None:
    assert max(grown.values()) < slack, {rank: f"{size / MIB:.1f} MiB" for rank, size in grown.items()}


def reader(brokers: Cluster, rank: int) -> Handle:
    """A connection to the broker of `rank`."""
    return Handle(brokers.flux("exec", "-r", str(rank), "flux", "getattr", "local-uri").stdout.strip())


@pytest.mark.parametrize("where", [["-N1", "--requires=rank:0"], ["-N1", "--requires=rank:1"], ["-N2", "-n2"]], ids=str)
def test_a_job_that_prints_much_quickly_does_not_grow_the_brokers(where: list[str], brokers: Cluster) -> None:
    def run() -> None:
        job = brokers.flux("submit", *where, *printing(200 if "-N1" in where else 100)).stdout.strip()
        assert brokers.flux("job", "wait-event", "-t", "100", job, "clean", timeout=110).returncode == 0
        assert brokers.flux("jobs", "-no", "{status}", job).stdout == "COMPLETED\n"

    assert_bounded(growth(brokers, run))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_watcher_that_does_not_read_gets_all_of_it_later(rank: int, brokers: Cluster) -> None:
    job = brokers.flux("submit", *printing(50)).stdout.strip()
    brokers.flux("job", "wait-event", job, "clean")
    with reader(brokers, rank) as slow:
        body = {"id": jobid.parse(job), "path": "guest.output", "flags": 0}
        stream = slow.stream("job-info.eventlog-watch", body)

        def others() -> None:
            for _ in range(5):
                assert brokers.flux("run", "-N2", "echo", "hi").stdout == "hi\nhi\n"

        assert_bounded(growth(brokers, others))
        data = sum(len(event["event"]) for event in stream)
        assert data > 50 * MIB


@pytest.mark.parametrize("rank", [0, 1])
def test_a_remote_command_waits_for_a_client_that_does_not_read(rank: int, brokers: Cluster) -> None:
    with brokers.handle() as slow:
        cmd = {"cmdline": printing(100), "cwd": "/", "env": dict(os.environ), "opts": {}, "channels": []}
        stream = slow.stream("rexec.exec", {"cmd": cmd, "flags": STDOUT_AND_STREAM}, nodeid=rank)
        assert stream.get(60)["type"] == "started"

        def others() -> None:
            for _ in range(5):
                assert brokers.flux("run", "-N2", "echo", "hi").stdout == "hi\nhi\n"
                assert brokers.flux("exec", "-r", "all", "echo", "hi").stdout == "hi\nhi\n"

        assert_bounded(growth(brokers, others))
        size, status = 0, None
        for reply in stream:
            if reply["type"] == "output":
                size += len(reply["io"].get("data", ""))
            elif reply["type"] == "finished":
                status = reply["status"]
        # head ends yes by SIGPIPE; the pipeline's status is head's.
        assert (size, status) == (100 * MIB, 0)


def test_a_client_that_leaves_while_its_command_waits_takes_the_command_with_it(brokers: Cluster) -> None:
    mark = "headrace-test-waiting"
    slow = brokers.handle()
    cmd = {"cmdline": ["sh", "-c", f"yes {mark}"], "cwd": "/", "env": dict(os.environ), "opts": {}, "channels": []}
    stream = slow.stream("rexec.exec", {"cmd": cmd, "flags": STDOUT_AND_STREAM}, nodeid=1)
    assert stream.get(60)["type"] == "started"

    def running() -> bool:
        return subprocess.run(["pgrep", "-f", f"yes {mark}"], capture_output=True, check=False).returncode == 0

    until(running, "the command runs")
    slow.close()
    until(lambda: not running(), "the command ends with its client")


def test_a_follower_of_the_log_that_does_not_read_is_disconnected(brokers: Cluster) -> None:
    line = ("<15>1 2026-01-01T00:00:00.000000Z 0 test - - - " + "x" * (20 << 10)).encode()
    with brokers.handle() as slow, brokers.handle() as chatty:
        slow.stream("log.dmesg", {"follow": True, "nobacklog": True})

        def flood() -> None:
            # Some of it is in sockets, the rest is more than a client may leave unread.
            for _ in range(10_000):
                chatty.send(m.request("log.append", payload=line + b"\0"))
            assert chatty.attr_get("size") == "2"
            until(lambda: "left 64 MiB unread" in brokers.log(0), "the lead says why it cut the client off")

        assert_bounded(growth(brokers, flood), 120 * MIB)
        assert brokers.flux("run", "-N2", "echo", "hi").stdout == "hi\nhi\n"
        assert max(map(len, brokers.flux("dmesg").stdout.splitlines())) < 10_000
