"""Liveness of children: a torpid child is slow or stopped, but not (yet) lost.

A broker that sends nothing else sends its parent an "alive" message every `tbon.torpid_min`. A child that was silent
for `tbon.torpid_max` is torpid: its subtree joins the group `broker.torpid`, which the resource service follows, and
counts as degraded until the child sends a message. The loss of a child is detected when its connection ends. ZeroMQ
does not report whose connection it was, so all children are probed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.formats.spec import duration
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon.child import Child
    from headrace.formats.spec.topology import Topology

# A CONTROL message type (aux1), in addition to those of the overlay.
ALIVE = 4
# Checks of the children per `tbon.torpid_max`, so a child is found torpid at most a sixth of that time late.
_CHECKS = 6


class Upward(Protocol):
    """The link to the parent (`ParentLink`).

    `quiet` is true if no message was sent since it was set to true.
    """

    quiet: bool

    def transmit(self, msg: Message) -> bool: ...


class Links(Protocol):
    """The part of a broker's links to its neighbours that this file needs (`Overlay`)."""

    closing: bool
    rank: int
    topology: Topology
    children: dict[int, Child]

    @property
    def broker(self) -> BrokerBase: ...
    @property
    def parent(self) -> Upward | None: ...
    def report(self) -> None: ...


class Liveness:
    """The liveness of one broker's neighbours. Call `start()` once there are any."""

    def __init__(self, overlay: Links) -> None:
        self._overlay = overlay
        self._broker = overlay.broker
        attrs = overlay.broker.attrs
        self._least = duration.parse(attrs.get("tbon.torpid_min"))
        self._most = duration.parse(attrs.get("tbon.torpid_max"))
        self._checked = 0.0
        self._timers: list[asyncio.TimerHandle] = []
        attrs.watchers.append(self._set)

    def start(self) -> None:
        """Start, or restart, the reports and checks."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._overlay.rank and 0 < self._least < math.inf:
            self._later(self._least, self._send_alive)
        if self._overlay.children and 0 < self._most < math.inf:
            self._checked = self._broker.loop.time()
            self._later(self._most / _CHECKS, self._check_children)

    def _later(self, seconds: float, fn: Callable[[], None]) -> None:
        now = self._broker.loop.time()
        self._timers = [timer for timer in self._timers if timer.when() > now]
        self._timers.append(self._broker.loop.call_later(seconds, fn))

    def _set(self, name: str, value: str | None) -> None:
        """Handle the change of an attribute."""
        if value is None or name not in ("tbon.torpid_min", "tbon.torpid_max"):
            return
        if name == "tbon.torpid_min":
            self._least = duration.parse(value)
        else:
            self._most = duration.parse(value)
        self.start()

    def _send_alive(self) -> None:
        overlay = self._overlay
        if overlay.closing:
            return
        parent = overlay.parent
        if parent is not None:
            if parent.quiet:
                parent.transmit(Message(m.CONTROL, aux1=ALIVE))
            parent.quiet = True
        self._later(self._least, self._send_alive)

    def _check_children(self) -> None:
        if self._overlay.closing:
            return
        now = self._broker.loop.time()
        # If this process was stopped itself, the children's messages may still be in the socket.
        prompt = now - self._checked < self._most
        self._checked = now
        for child in self._overlay.children.values():
            if prompt and child.alive and not child.torpid and now - child.heard > self._most:
                self._change(child, True)
        self._later(self._most / _CHECKS, self._check_children)

    def heard(self, child: Child) -> None:
        """Handle a message from a torpid child."""
        self._change(child, False)

    def _change(self, child: Child, torpid: bool) -> None:
        child.torpid = torpid
        child.changed(child)
        what = f"torpid: no message for {duration.encode(self._most)}" if torpid else "not torpid any more"
        self._broker.log(logging.ERROR, "overlay", f"{child.title} is {what}")
        ranks = str(Idset(self._overlay.topology.subtree(child.rank)))
        update = {"broker.torpid": {"add" if torpid else "remove": ranks}}
        self._broker.context.call("groups.update", {"update": update}, nodeid=0)
        self._overlay.report()


# Seconds after which ZeroMQ refuses to send to a child that has disconnected.
_PROBE_DELAY = 0.05


class Probes:
    """Calls `probe` when a connection has ended, and again later, once ZeroMQ has forgotten the peer.

    If other connections end in the meantime, the second call is the first probe for all of them, and a third follows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, probe: Callable[[], None]) -> None:
        self._loop = loop
        self._probe = probe
        self._timer: asyncio.TimerHandle | None = None
        # True if connections have ended since the first probe.
        self._more = False

    def connection_ended(self) -> None:
        if self._timer is not None:
            self._more = True
            return
        self._timer = self._loop.call_later(_PROBE_DELAY, self._delayed)
        self._probe()

    def _delayed(self) -> None:
        self._timer = None
        if self._more:
            self._more = False
            self.connection_ended()
        else:
            self._probe()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
