"""The hello by which a broker joins its parent (`overlay.hello`), and why the parent refuses one."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from headrace import __version__
from headrace.engine.broker.boot.boot import BootInfo
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Characters of a host's name that are kept.
_LONGEST_NAME = 64


class Hello(NamedTuple):
    """A broker as it describes itself; rank and uuid of a received hello may be of any type."""

    rank: Any
    uuid: Any
    host: str

    def request(self) -> Message:
        body = {"rank": self.rank, "uuid": self.uuid, "version": __version__, "host": self.host}
        return m.request("overlay.hello", body, matchtag=1)


def read(msg: Message) -> Hello:
    """The hello of a request. Raises MessageError."""
    body = msg.obj or {}
    return Hello(body.get("rank"), body.get("uuid"), str(body.get("host", ""))[:_LONGEST_NAME])


def refusal(hello: Hello, identity: str, children: Container[int], boot: BootInfo) -> str:
    """Why the hello of the peer with this ZeroMQ identity is refused, "" if it is not. `boot` is the parent's."""
    rank, host = hello.rank, hello.host
    if type(rank) is not int or rank not in children or hello.uuid != identity:
        return f"rank {rank} is not a child of rank {boot.rank}, or its uuid is not its own"
    if boot.method == "config" and host in boot.hosts and host != boot.hosts[rank]:
        # The child has the hosts in another order, so messages for other ranks would reach it.
        return f"rank {rank} is {boot.hosts[rank]} here, and {host} is rank {boot.hosts.index(host)}"
    return ""
