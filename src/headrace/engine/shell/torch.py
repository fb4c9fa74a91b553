"""`-o torch[=PORT]`: variables for the rendezvous of a PyTorch job (`env://` of torch.distributed).

PyTorch's process of rank 0 listens at MASTER_ADDR and MASTER_PORT. The shell on the node of task 0 reserves a free
port, and the shells of all nodes get it in a barrier before they start tasks. Variables that the user set are kept. The
PET_ variables are for torchrun: with one task per node, it connects the launchers of all nodes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

OPTION = "torch"
# A variable with the names of the variables that this option has set. If a job is submitted from a task, they must not
# be treated as set by the user.
_SET_HERE = "HEADRACE_TORCH"
_LOOPBACK = "127.0.0.1"
# An address for documentation (RFC 5737). The route to it is the route to other machines. Nothing is sent.
_ELSEWHERE = ("192.0.2.1", 9)


class TorchError(ValueError):
    """The option is invalid, or no port is free."""


def wanted_port(options: Mapping[str, Any]) -> int | None:
    """The port in the option; 0: any free port; None: the option is not set. Raises TorchError."""
    option = options.get(OPTION)
    # `-o torch` without a value is the number 1.
    if option is None or option in (0, 1):
        return 0 if option else None
    if isinstance(option, int) and 1 < option < 1 << 16:
        return option
    raise TorchError(f"invalid torch={option}: must be a port from 2 to 65535, or have no value")


class Rendezvous:
    """The rendezvous address of one job, in the shell of one node.

    `port` 0 means any free port. `leads` is True if this node has task 0. Raises TorchError if no port is free.
    """

    def __init__(self, port: int, nodeid: int, leads: bool, host: str) -> None:
        self._nodeid = nodeid
        self._leads = leads
        self._host = host
        self._port = port
        self._address = ""
        # Bound until tasks start, so that no other job gets the same port meanwhile.
        self._reserved: socket.socket | None = None
        if leads and not port:
            try:
                self._reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
                self._reserved.bind(("", 0))
            except OSError as exc:
                raise TorchError(f"torch: no free port: {exc.strerror}") from None
            self._port = self._reserved.getsockname()[1]

    def offer(self) -> dict[str, str]:
        """The pairs that this node contributes to the barrier."""
        own = {f"torch.network.{self._nodeid}": _network()}
        if self._leads:
            own |= {"torch.port": str(self._port), "torch.address": _own_address() or self._host}
        return own

    def met(self, pairs: Mapping[str, str]) -> None:
        """Set the address from the pairs of all nodes, after the barrier."""
        self._port = int(pairs["torch.port"])
        networks = {value for key, value in pairs.items() if key.startswith("torch.network.")}
        # If all nodes are one machine, as in a test instance, host names may not resolve, so the loopback is used.
        self._address = _LOOPBACK if len(networks) == 1 else pairs["torch.address"]

    def release(self) -> None:
        """Free the port for the process of rank 0."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def add_to(self, env: dict[str, str], *, rank: int, local: int, size: int, local_size: int, nnodes: int) -> None:
        """Add the variables of one task to its environment, except variables that the user set."""
        inherited = env.get(_SET_HERE, "").split(",")
        added: list[str] = []

        def add(name: str, value: str) -> None:
            if name not in env or name in inherited:
                env[name] = value
                added.append(name)

        add("MASTER_ADDR", self._address)
        add("MASTER_PORT", str(self._port))
        add("RANK", str(rank))
        add("LOCAL_RANK", str(local))
        add("WORLD_SIZE", str(size))
        add("LOCAL_WORLD_SIZE", str(local_size))
        add("GROUP_RANK", str(self._nodeid))
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            add(f"PET_{name}", env[name])
        add("PET_NNODES", str(nnodes))
        add("PET_NODE_RANK", str(self._nodeid))
        env[_SET_HERE] = ",".join(added)


def _network() -> str:
    """A text that is equal for processes that share a loopback interface."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"


def _own_address() -> str:
    """This node's address for connections from other machines; "" if there is none.

    No name is resolved, because that could block the event loop of all jobs of the node for seconds.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(_ELSEWHERE)
            address: str = probe.getsockname()[0]
        except OSError:
            return ""
    return "" if address.startswith("127.") else address
