"""What one guest does costs the others little: memory of the brokers stays within its budget, and comes back."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster, until
from test_guests import as_guest, instance, refused

from headrace.formats.spec import message as m
from headrace.wire.client.handle import Handle

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
MIB = 1 << 20
JUNK = "y" * (8 * MIB)


def memory(brokers: Cluster) -> dict[int, int]:
    """Proportional set size of each broker, in bytes."""
    found = {}
    for rank, process in brokers.brokers.items():
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        found[rank] = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return found


def resident(brokers: Cluster) -> int:
    """Resident memory of the lead in bytes, which other users may read, too."""
    statm = Path(f"/proc/{brokers.brokers[0].pid}/statm").read_text()
    return int(statm.split()[1]) * os.sysconf("SC_PAGESIZE")


def connected(handle: Handle) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(handle.uri.removeprefix("local://"))
    assert sock.recv(1) == b"\0"
    return sock


def asked(topic: str, body: dict[str, Any], tag: int, flags: int = 0, nodeid: int = m.NODEID_ANY) -> bytes:
    return m.frame(m.request(topic, body, nodeid, tag, flags))


def refusals(sock: socket.socket, count: int) -> list[int]:
    """The errors of the next `count` responses that are errors."""
    deframer = m.Deframer()
    found: list[int] = []
    while len(found) < count:
        data = sock.recv(1 << 20)
        assert data
        deframer.feed(data)
        found += [msg.errnum for msg in deframer if msg.errnum]
    return found


def users(brokers: Cluster, rank: int = 0) -> dict[str, dict[str, int]]:
    with brokers.handle() as handle:
        stats = handle.rpc("connector-local.stats-get", {}, nodeid=rank).get(60)
    return dict(stats["guests"]["users"])


def given_back(brokers: Cluster, before: dict[int, int]) -> None:
    """Wait until no broker has anything of the guest. The thread of ZeroMQ keeps the place for its largest message."""

    def settled() -> bool:
        for rank in brokers.brokers:
            for user in users(brokers, rank).values():
                if user["bytes"] or user["streams"] or user["connections"]:
                    return False
        now = memory(brokers)
        return all(now[rank] < before[rank] + 20 * MIB for rank in now)

    until(settled, "what the guest held was given back")


def test_streams_with_much_in_their_requests_are_refused_here_and_over_the_tree():
    def ask(handle: Handle) -> Any:
        with connected(handle) as sock:
            for tag in range(1, 13):
                sock.sendall(asked("groups.get", {"name": "x", "junk": JUNK}, tag, m.FLAG_STREAMING, 0))
            return refusals(sock, 10)

    with instance("allow-guest-user = true", 2) as brokers:
        follower = f"local://{brokers.flux('exec', '-r1', 'flux', 'getattr', 'rundir').stdout.strip()}/local-1"
        os.chmod(os.path.dirname(follower.removeprefix("local://")), 0o755)
        before = memory(brokers)
        for uri in (brokers.uri, follower):
            assert as_guest(uri, ask) == [errno.EAGAIN] * 10
            given_back(brokers, before)


def test_unfinished_messages_subscriptions_and_connections_have_an_end():
    def ask(handle: Handle) -> Any:
        begun = asked("broker.ping", {"junk": JUNK}, 1)[: 8 * MIB]
        kept = []
        for _ in range(20):
            sock = connected(handle)
            sock.sendall(begun)
            kept.append(sock)
        grown = resident(brokers) - before_it
        topics = [handle.rpc("event.subscribe", {"topic": f"t{number}"}) for number in range(300)]
        codes: dict[str, int] = {}
        for rpc in topics:
            try:
                rpc.get(60)
                code = 0
            except OSError as exc:
                code = exc.errno or 0
            codes[str(code)] = codes.get(str(code), 0) + 1
        more = 0
        try:
            while True:
                kept.append(connected(handle))
                more += 1
        except (OSError, AssertionError):
            pass
        return [grown < 64 * MIB, codes, len(kept)]

    with instance("allow-guest-user = true") as brokers:
        before = memory(brokers)
        before_it = resident(brokers)
        assert as_guest(brokers.uri, ask) == [True, {"0": 256, str(errno.ENOSPC): 44}, 63]
        given_back(brokers, before)
        assert brokers.flux("run", "echo", "alive").stdout == "alive\n"


def test_a_guests_records_say_so_and_have_an_end():
    def ask(handle: Handle) -> Any:
        line = b"<2>1 1970-01-01T00:00:00.000000Z 7 broker - - - " + b"y" * 1000
        for _ in range(200):
            handle.send(m.request("log.append", None, m.NODEID_ANY, 0, m.FLAG_NORESPONSE, payload=line))
        handle.rpc("broker.ping", {}).get(60)
        return os.getuid()

    with instance("allow-guest-user = true") as brokers:
        uid = as_guest(brokers.uri, ask)
        lines = [line for line in brokers.flux("dmesg").stdout.splitlines() if "yyyy" in line]
        assert 40 <= len(lines) <= 65
        assert all(f"user.info[0]: {uid} broker: y" in line for line in lines)
        assert "access.limits.log-bytes" in brokers.flux("dmesg").stdout


def test_checks_and_listings_of_a_guest_do_not_hold_up_the_owner():
    many = {"or": [{"ranks": ["0-16000000"]}] * 3000}
    alternatives = [
        {"type": "slot", "label": f"t{number}", "count": "1,3,5", "with": [{"type": "core", "count": {"min": 1}}]}
        for number in range(200)
    ]
    core = [{"type": "slot", "label": "t", "count": 1, "with": [{"type": "core", "count": 1}]}]
    hosts = {"or": [{"hostlist": ["h[0-1000000]"]}] * 300}

    def ask(handle: Handle) -> Any:
        codes = []
        for resources, wanted in ((core, many), (alternatives, None), (core, hosts), (core, None)):
            system = {"duration": 0, **({"constraints": wanted} if wanted else {})}
            spec = {"version": 1, "resources": resources, "tasks": [], "attributes": {"system": system}}
            codes.append(refused(handle, "feasibility.check", {"jobspec": spec}))
        listing = {"max_entries": 0, "attrs": ["id"], "constraint": hosts}
        return [*codes, refused(handle, "job-list.list", listing)]

    with instance("allow-guest-user = true") as brokers:
        assert brokers.flux("run", "true").returncode == 0
        begin = processor_time(brokers.brokers[0].pid)
        codes = as_guest(brokers.uri, ask)
        assert codes[0] == codes[2] == errno.E2BIG
        assert codes[1] in (0, errno.EINVAL, errno.E2BIG)
        assert codes[3:] == [0, errno.EPROTO]
        assert processor_time(brokers.brokers[0].pid) - begin < 2.0
        assert brokers.flux("run", "echo", "alive").stdout == "alive\n"


def processor_time(pid: int) -> float:
    """Seconds of a process and of those that it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_limits_are_read_again_with_the_configuration():
    def ask(handle: Handle) -> Any:
        with connected(handle) as sock:
            for tag in (1, 2):
                sock.sendall(asked("groups.get", {"name": "x"}, tag, m.FLAG_STREAMING))
            sock.sendall(asked("no.such", {}, 3))
            return refusals(sock, 1)[0]

    with instance("allow-guest-user = true\nlimits.streams = 1") as brokers:
        assert as_guest(brokers.uri, ask) == errno.EAGAIN
        path = Path(brokers.config)
        path.write_text(path.read_text().replace("limits.streams = 1", "limits.streams = 2"))
        assert brokers.flux("config", "reload").returncode == 0
        assert as_guest(brokers.uri, ask) == errno.ENOSYS
        path.write_text(path.read_text().replace("limits.streams = 2", "limits.streams = -2"))
        assert "must be an integer, 0 or more" in brokers.flux("config", "reload").stderr
