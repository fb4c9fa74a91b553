"""A child in the tree, as seen by its parent: its hello, its status, and pending requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import __version__
from headrace.engine.broker.budget import Account, Budget
from headrace.engine.broker.tbon.outstanding import Outstanding
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.broker.boot.boot import BootInfo


class Child:
    """A child, from its hello until it is lost. Its `uuid` is also its ZeroMQ identity."""

    def __init__(self, rank: int, budget: Budget) -> None:
        self.rank = rank
        self.uuid = ""
        self.status = "offline"
        self.since = time.monotonic()
        self.send: Callable[[Message], None] = lambda _msg: None
        # Requests to the child without a response yet, and requests from its subtree that wait for responses.
        self.sent_requests = Outstanding()
        self.received_requests = Outstanding()
        # The account of the guests in the subtree of this child.
        self.account = Account(budget)
        self.error = ""
        self.host = ""
        self.heard = 0.0
        self.torpid = False
        # Called after a change of `status` or `torpid`.
        self.changed: Callable[[Child], None] = lambda _child: None

    def join(self, uuid: str, now: float, status: str) -> None:
        """Accept a broker of this rank. `now` is the loop's time."""
        self.uuid = uuid
        self.error = ""
        self.torpid = False
        self.heard = now
        self.become(status)

    def become(self, status: str) -> None:
        if status != self.status:
            self.status = status
            self.since = time.monotonic()
            self.changed(self)

    def monitored(self) -> dict[str, Any]:
        """The child's data in responses of overlay.monitor."""
        return {"rank": self.rank, "status": self.status, "torpid": self.torpid}

    @property
    def state(self) -> str:
        """The child's status, or "torpid"."""
        return "torpid" if self.torpid else self.status

    def health(self, now: float) -> dict[str, Any]:
        """The child's data in the response of overlay.health. `now` is monotonic, the duration in seconds."""
        entry = {"rank": self.rank, "status": self.state, "duration": now - self.since}
        return {**entry, "error": self.error} if self.error else entry

    @property
    def title(self) -> str:
        """Rank and host, if known, for the log."""
        return f"rank {self.rank} ({self.host})" if self.host else f"rank {self.rank}"

    @property
    def alive(self) -> bool:
        return self.status not in ("offline", "lost")


# Longer host names are cut to this many characters.
_LONGEST_NAME = 64


class Hello(NamedTuple):
    """A broker's description of itself. Rank and uuid of a received hello may have any type."""

    rank: Any
    uuid: Any
    host: str

    def request(self) -> Message:
        body = {"rank": self.rank, "uuid": self.uuid, "version": __version__, "host": self.host}
        return m.request("overlay.hello", body, matchtag=1)


def read_hello(msg: Message) -> Hello:
    """Parse the hello in a request. Raises MessageError."""
    body = msg.obj or {}
    return Hello(body.get("rank"), body.get("uuid"), str(body.get("host", ""))[:_LONGEST_NAME])


def refusal(hello: Hello, identity: str, children: Container[int], boot: BootInfo) -> str:
    """The reason to refuse the hello of the peer with this ZeroMQ identity, or "". `boot` is the parent's."""
    rank, host = hello.rank, hello.host
    if type(rank) is not int or rank not in children or hello.uuid != identity:
        return f"rank {rank} is not a child of rank {boot.rank}, or its uuid is not its own"
    if boot.method == "config" and host in boot.hosts and host != boot.hosts[rank]:
        # The child has the hosts in another order, so it would get messages for other ranks.
        return f"rank {rank} is {boot.hosts[rank]} here, and {host} is rank {boot.hosts.index(host)}"
    return ""
