"""When a follower may begin, and what it hears of the leader: its own rc1 script needs what its parent's has loaded.

Flux lets a broker leave `join` when its parent has reached `quorum`. We do so where a script loads the modules; the
modules that brokers load themselves do not wait for each other, and a deep tree starts the faster for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..spec import message as m
from ..spec.message import Message
from . import state

if TYPE_CHECKING:
    from .broker import Broker


def when_parent_is_through(broker: Broker, go: Callable[[str], None]) -> None:
    """`go("parent-ready")` when the parent's rc1 has run, `go("parent-fail")` when it never will."""

    def moved(reply: Message) -> None:
        if reply.errnum:
            go("parent-fail")
            return
        parent = state.STATES[reply.obj["state"]]
        if parent in ("quorum", "run"):
            go("parent-ready")
        elif state.before("run", parent):
            go("parent-fail")

    broker.context.call("state-machine.monitor", {}, moved, nodeid=broker.rank, streaming=True, flags=m.FLAG_UPSTREAM)


class LeaderState:
    """Subscribes a broker itself to the leader's state events."""

    uuid = "broker-state"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def send(self, msg: Message) -> None:
        with contextlib.suppress(m.MessageError):
            if self._broker.rank and msg.rolemask & m.ROLE_OWNER:
                self._broker.parent_state(str((msg.obj or {}).get("state")))
