"""What others feel while one guest does its worst: pings and a job of the owner, memory of the lead and its modules.

    pytest tests/system/test_guest_attacks.py -rP

prints a line for each attack: pings, the slowest hundredth of them, the time of a `flux run`, and the memory
(proportional set size) of the lead's processes before, at most and after it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster
from test_guests import GUEST, instance

from headrace.formats.spec import message as m
from headrace.wire.client.handle import Handle
from sizes import limit, size
from waiting import until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
MIB = 1 << 20
BIG = 15 * MIB
Attack = Callable[[str], None]


def connected(uri: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10.0)
    sock.connect(uri.removeprefix("local://"))
    if sock.recv(1) != b"\0":
        raise ConnectionRefusedError
    threading.Thread(target=read_all, args=(sock,), daemon=True).start()
    return sock


def read_all(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


def asked(topic: str, body: dict[str, Any], tag: int, flags: int = 0) -> bytes:
    return m.frame(m.request(topic, body, m.NODEID_ANY, tag, flags))


def streams(uri: str) -> None:
    sock = connected(uri)
    for tag in range(1, 41):
        sock.sendall(asked("groups.get", {"name": "x", "junk": "y" * BIG}, tag, m.FLAG_STREAMING))


def unfinished(uri: str) -> None:
    begun = asked("broker.ping", {"junk": "y" * BIG}, 1)[:-100]
    kept = []
    with contextlib.suppress(OSError):
        for _ in range(60):
            sock = connected(uri)
            kept.append(sock)
            sock.sendall(begun)
    signal.pause()


def subscriptions(uri: str) -> None:
    sock = connected(uri)
    for first in range(0, 200_000, 1000):
        topics = range(first, first + 1000)
        sock.sendall(b"".join(asked("event.subscribe", {"topic": f"zz{number}"}, m.MATCHTAG_NONE) for number in topics))
    flood(uri, "event.publish", [{"topic": "x", "flags": 0}])


def feasibility(uri: str) -> None:
    core = [{"type": "slot", "label": "t", "count": 1, "with": [{"type": "core", "count": 1}]}]
    slots = [
        {"type": "slot", "label": f"t{number}", "count": "1,3,5", "with": [{"type": "core", "count": {"min": 1}}]}
        for number in range(200)
    ]
    many = {"or": [{"ranks": ["0-16000000"]}] * 3000}
    flood(
        uri,
        "feasibility.check",
        [
            {"jobspec": {"version": 1, "resources": resources, "tasks": [], "attributes": {"system": system}}}
            for resources, system in ((core, {"constraints": many}), (slots, {}))
        ],
    )


def listings(uri: str) -> None:
    hosts = {"or": [{"hostlist": ["h[0-1000000]"]}] * 300}
    flood(uri, "job-list.list", [{"max_entries": 0, "attrs": ["id"], "constraint": hosts}])


def log_records(uri: str) -> None:
    line = b"<2>1 2026-11-26T12:00:00.000000Z 0 broker - - - " + b"y" * 60_000
    frame = m.frame(m.request("log.append", None, m.NODEID_ANY, 0, m.FLAG_NORESPONSE, payload=line))
    sock = connected(uri)
    while True:
        sock.sendall(frame)


def flood(uri: str, topic: str, bodies: list[dict[str, Any]]) -> None:
    with Handle(uri) as handle:
        while True:
            for body in bodies:
                with contextlib.suppress(OSError):
                    handle.rpc(topic, body).get(600)


ATTACKS: list[Attack] = [streams, unfinished, subscriptions, feasibility, listings, log_records]


@contextlib.contextmanager
def guest(attack: Attack, uri: str) -> Iterator[None]:
    """A process of another user that attacks until this is over."""
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(GUEST)
            os.setuid(GUEST)
            with contextlib.suppress(OSError):
                attack(uri)
            signal.pause()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def memory(lead: int) -> int:
    """Bytes of a broker and of the processes of its modules."""
    total = 0
    for pid in [lead, *map(int, Path(f"/proc/{lead}/task/{lead}/children").read_text().split())]:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return total


def felt(brokers: Cluster, seconds: float) -> tuple[list[float], float, int]:
    """Seconds of the owner's pings, of a job of the owner, and the most memory of the lead meanwhile."""
    took: list[list[float]] = [[], []]
    lead, most = brokers.brokers[0].pid, 0

    def run() -> None:
        begin = time.monotonic()
        assert brokers.flux("run", "true", timeout=600).returncode == 0
        took[1].append(time.monotonic() - begin)

    job = threading.Thread(target=run)
    job.start()
    end = time.monotonic() + seconds
    with brokers.handle() as handle:
        while time.monotonic() < end or job.is_alive():
            begin = time.monotonic()
            handle.rpc("broker.ping", {}).get(600)
            took[0].append(time.monotonic() - begin)
            if len(took[0]) % 8 == 1:
                most = max(most, memory(lead))
            time.sleep(0.01)
    job.join()
    assert took[1], "the owner's job did not run"
    return took[0], took[1][0], most


@pytest.mark.soak
@pytest.mark.timeout(limit(600))
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_guest_costs_the_others_little(attack: Attack) -> None:
    with instance("allow-guest-user = true") as brokers:
        assert brokers.flux("run", "true").returncode == 0
        lead = brokers.brokers[0].pid
        before = memory(lead)
        with guest(attack, brokers.uri):
            pings, job, most = felt(brokers, size("guest_seconds"))
        until(lambda: memory(lead) < before + 24 * MIB)
        pings.sort()
        slow = pings[int(len(pings) * 0.99)]
        print(
            f"{attack.__name__}: {len(pings)} pings, the slowest hundredth {slow * 1000:.0f} ms, the slowest "
            f"{pings[-1] * 1000:.0f} ms; flux run {job:.1f} s; memory {before >> 20} MiB, at most {most >> 20}, "
            f"{memory(lead) >> 20} after it"
        )
        assert most - before < 64 * MIB
