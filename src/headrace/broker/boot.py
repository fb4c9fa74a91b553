"""What a broker must know before it can join an instance, however it learns it.

A boot method (alone, `start --test-size`, PMI, Slurm, a `[bootstrap]` table) fills one BootInfo; nothing after this
file knows which method it was. CURVE keys are random, never derived from anything, and never printed.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from ..spec.hostlist import Hostlist
from .topology import Topology, TopologyError


class BootError(Exception):
    """The instance cannot be assembled; the text says what is missing."""


@dataclass
class BootInfo:
    """Rank, tree and keys of one broker. Keys are Z85 text as ZeroMQ takes them."""

    rank: int
    size: int
    method: str
    topology: Topology
    hostname: str
    hosts: list[str] = field(default_factory=list)
    # `hosts` in RFC 29 form, where it is known already.
    hostlist: str = ""
    bind: str = ""
    parent_uri: str = ""
    parent_key: bytes = b""
    public_key: bytes = b""
    secret_key: bytes = field(default=b"", repr=False)
    members: set[bytes] = field(default_factory=set)
    attrs: dict[str, str] = field(default_factory=dict)


def new_keys() -> tuple[bytes, bytes]:
    """A random CURVE pair (public, secret)."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public, secret


def local_hostname() -> str:
    """The host's short name, or FLUX_FAKE_HOSTNAME for tests of many hosts on one."""
    return os.environ.get("FLUX_FAKE_HOSTNAME") or socket.gethostname().split(".")[0]


def alone(hostname: str = "", topo: str = "kary:32") -> BootInfo:
    """An instance of one broker. Raises BootError."""
    host = hostname or local_hostname()
    try:
        return BootInfo(0, 1, "single", Topology(1, topo), host, [host])
    except TopologyError as exc:
        raise BootError(str(exc)) from None


def on_one_machine(size: int, rundir: str, topo: str, hosts: list[str]) -> list[BootInfo]:
    """All brokers of a `--test-size` instance: every endpoint is known beforehand, so there is nothing to exchange.

    One random pair is shared by the brokers; it only ever lives in the memory of the processes forked with it.
    """
    topology, hostlist = Topology(size, topo), str(Hostlist(hosts))
    public, secret = new_keys() if size > 1 else (b"", b"")
    infos = []
    for rank in range(size):
        parent = topology.parent(rank)
        infos.append(
            BootInfo(
                rank,
                size,
                "test",
                topology,
                hosts[rank],
                hosts,
                hostlist,
                f"ipc://{rundir}/tbon-{rank}",
                f"ipc://{rundir}/tbon-{parent}" if rank else "",
                public,
                public,
                secret,
                {public},
            )
        )
    return infos
