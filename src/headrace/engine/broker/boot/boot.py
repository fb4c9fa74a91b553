"""The data that a broker needs to join an instance, independent of their source.

A boot method (alone, `start --test-size`, PMI, Slurm, a `[bootstrap]` table) creates a BootInfo; all other code is
independent of the method. CURVE keys are random, never derived from anything, and never printed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.topology import Topology, TopologyError


class BootError(Exception):
    """The instance cannot be assembled. The text says what is missing."""


class BootInfo:
    """Rank, tree and keys of one broker. Keys are Z85 text, as ZeroMQ uses them."""

    def __init__(
        self,
        rank: int,
        size: int,
        method: str,
        topology: Topology,
        hostname: str,
        hosts: list[str] | None = None,
        hostlist: str = "",
    ) -> None:
        self.rank = rank
        self.size = size
        self.method = method
        self.topology = topology
        self.hostname = hostname
        self.hosts = hosts or []
        # `hosts` in RFC 29 form, if it is known already.
        self.hostlist = hostlist
        self.bind = ""
        self.parent_uri = ""
        # True if the sockets at `bind` and to the parent have IPv6 in addition to IPv4.
        self.bind_ipv6 = True
        self.parent_ipv6 = True
        # The reason why the parent's host name has no address. "" if it has one or was not looked up.
        self.parent_unresolved = ""
        self.parent_key = b""
        self.public_key = b""
        self.secret_key = b""
        # The file that the keys were read from, or "".
        self.certificate = ""
        self.members: set[bytes] = set()
        # The pid of the process that forked all brokers of a test instance.
        self.starter = 0
        self.attrs: dict[str, str] = {}

    @property
    def may_grow(self) -> bool:
        """True if hosts may be added while the instance runs, which requires known addresses and keys."""
        return self.method == "config" and bool(self.public_key)


def new_keys() -> tuple[bytes, bytes]:
    """A random CURVE pair (public, secret)."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public, secret


def local_hostname() -> str:
    """The host's short name, or FLUX_FAKE_HOSTNAME for tests of many hosts on one."""
    return os.environ.get("FLUX_FAKE_HOSTNAME") or socket.gethostname().split(".")[0]


def prefers_tcp(attrs: Mapping[str, str]) -> bool:
    return attrs.get("tbon.prefertcp", "0") != "0"


def free_port(address: str = "") -> int:
    """A TCP port on which no socket listens, at an IPv4 address of this host or at any. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def alone(hostname: str = "", topo: str = "kary:32") -> BootInfo:
    """An instance of one broker. Raises BootError."""
    host = hostname or local_hostname()
    try:
        return BootInfo(0, 1, "single", Topology(1, topo), host, [host])
    except TopologyError as exc:
        raise BootError(str(exc)) from None


def on_one_machine(size: int, rundir: str, topology: Topology, hosts: list[str], tcp: str = "") -> list[BootInfo]:
    """All brokers of a `--test-size` instance. Every endpoint is known, so nothing is exchanged.

    With `tcp`, an address of this machine, they communicate over TCP. The brokers share one random key pair, which only
    ever exists in the memory of the processes forked with it.
    """
    hostlist, starter = str(Hostlist(hosts)), os.getpid()
    ends = [f"tcp://{tcp}:{free_port(tcp)}" if tcp else f"ipc://{rundir}/tbon-{rank}" for rank in range(size)]
    public, secret = new_keys() if size > 1 else (b"", b"")
    infos = []
    for rank in range(size):
        parent = topology.parent(rank)
        info = BootInfo(rank, size, "test", topology, hosts[rank], hosts, hostlist)
        info.bind = ends[rank]
        info.parent_uri = ends[parent] if rank else ""
        info.parent_key = info.public_key = public
        info.secret_key = secret
        info.members = {public}
        info.starter = starter
        infos.append(info)
    return infos


# The boot methods that a user may request, in an attribute or a variable.
_OURS = ("config", "pmi2", "simple", "single", "slurm")
# Methods of Flux that Headrace does not have. If they are requested together with others, the others are tried.
_NOT_HERE = ("cray-pals", "libpmi", "libpmi1", "libpmi2", "pmix")


def asked_methods(attrs: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The boot methods in the attribute `broker.boot-method`, or in FLUX_PMI_CLIENT_METHODS, in order.

    Empty if all methods may be tried. Raises BootError for a method that Flux does not have.
    """
    names = (attrs.get("broker.boot-method") or env.get("FLUX_PMI_CLIENT_METHODS", "")).split()
    for name in names:
        if name not in (*_OURS, *_NOT_HERE):
            raise BootError(f"bootstrap: plugin matching '{name}' not found")
    return names


def method_in_test_instance(attrs: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The first requested method among those of a test instance (`config`, `simple` and `single`), or "".

    Raises BootError.
    """
    return next((name for name in asked_methods(attrs, env) if name in ("config", "simple", "single")), "")
