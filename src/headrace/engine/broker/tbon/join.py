"""The end of the state `join` on a follower.

Its rc1 script needs modules that its parent's rc1 has loaded. In Flux, a broker leaves `join` when its parent has
reached `quorum`. Here it waits only if a script loads the modules. Modules that brokers load themselves do not depend
on the parent's, and a deep tree starts faster without the wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.engine.broker.state import machine
from headrace.formats.spec import duration
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase

# Seconds after which a broker logs that its parent has not responded.
_SLOW = 5.0
# Seconds between two checks that the process that started this broker still exists.
_POLL_INTERVAL = 0.5
# Boot methods in which all brokers exchange data during the boot. With other methods, brokers may start at any time.
_MET = ("simple", "pmi2", "slurm")


def all_have_met(broker: BrokerBase) -> bool:
    """True if a launcher started all brokers together: a broker lost before it has joined never returns."""
    return broker.boot.method in _MET


def expect_parent(broker: BrokerBase) -> None:
    """Log that the parent does not respond, and end the broker after `tbon.connect_timeout` (0: never).

    It ends only if a launcher started the parent together with it. A broker of a test instance ends with `flux start`,
    which makes the leader shut down when it ends, possibly before all brokers have joined.
    """
    uri = broker.boot.parent_uri

    def slow() -> None:
        if broker.state == "join":
            text = f"waiting for the parent broker at {uri}, which has not answered yet"
            broker.log(logging.CRITICAL, "broker", text)

    def too_slow() -> None:
        if broker.state == "join":
            text = f"the parent broker at {uri} has not answered within tbon.connect_timeout={limit}: giving up"
            broker.log(logging.CRITICAL, "broker", text)
            broker.exit_code = 1
            broker.advance("parent-fail")

    def left_alone() -> None:
        if broker.state == "join":
            if os.getppid() != broker.boot.starter:
                broker.exit_code = 1
                broker.advance("parent-fail")
            else:
                broker.loop.call_later(_POLL_INTERVAL, left_alone)

    broker.loop.call_later(_SLOW, slow)
    if broker.boot.starter:
        broker.loop.call_later(_POLL_INTERVAL, left_alone)
    limit = broker.attrs.get("tbon.connect_timeout")
    connect_timeout = duration.parse(limit)
    if connect_timeout and all_have_met(broker):
        broker.loop.call_later(connect_timeout, too_slow)


def expect_children(broker: BrokerBase, give_up: Callable[[], None]) -> None:
    """Call `give_up()` once absent children, started together with this broker, have given up."""
    connect_timeout = duration.parse(broker.attrs.get("tbon.connect_timeout"))
    if connect_timeout and all_have_met(broker):
        broker.loop.call_later(connect_timeout + _SLOW, give_up)


def when_parent_is_through(broker: BrokerBase, go: Callable[[str], None]) -> None:
    """Call `go("parent-ready")` when the parent's rc1 has run, or `go("parent-fail")` if it never will."""

    def moved(reply: Message) -> None:
        if reply.errnum:
            go("parent-fail")
            return
        parent = machine.STATES[reply.obj["state"]]
        if parent in ("quorum", "run"):
            go("parent-ready")
        elif machine.before("run", parent):
            go("parent-fail")

    broker.context.call("state-machine.monitor", {}, moved, nodeid=broker.rank, streaming=True, flags=m.FLAG_UPSTREAM)


def leader_state(entered: Callable[[str, int], None]) -> Callable[[Message], None]:
    """A handler for the leader's events `broker.state`, which calls `entered(state, signal)` for each."""

    def take(msg: Message) -> None:
        with contextlib.suppress(m.MessageError):
            if msg.rolemask & m.ROLE_OWNER:
                body = msg.obj or {}
                entered(str(body.get("state")), int(body.get("signal", 0)))

    return take
