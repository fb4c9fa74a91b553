"""The log service: appends lines, and streams the ring and new lines to `flux dmesg` (RFC 5424 lines).

A ring of a thousand lines is a thousand responses. They are sent in portions, each after the reader has read the one
before (`drain.py`). So a slow reader, or one with a hundred requests, costs the broker at most one portion per request.
"""

from __future__ import annotations

import errno
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.budget import is_guest
from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.engine.broker.services import drain
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.broker import LOG

if TYPE_CHECKING:
    from headrace.engine.broker.logbook import Logbook
    from headrace.engine.broker.parts import BrokerBase

# Lines of the ring to send before waiting until the reader has read them.
PORTION = 64
# Seconds that lines wait to be forwarded together, and the lowest severity that does not wait (notice).
_FORWARD_DELAY, _URGENT = 0.02, 5


def register(broker: BrokerBase, ctx: ModuleContext) -> None:
    """Register `log.append`, `log.dmesg` and `log.clear`, and forward a follower's lines to the leader."""
    log = broker.log
    readers = _Readers(ctx, log)

    def append_line(line: str) -> None:
        try:
            log.append(line)
        except ValueError:
            raise _invalid_line() from None

    def append(msg: Message) -> Empty:
        if not is_guest(msg):
            append_line(msg.text)
            return EMPTY
        if broker.router.local_peer(msg) is None:
            # The line must have the rank of the broker that authenticated the guest.
            raise RpcError(errno.EPROTO, "log.append: guests append on the broker that they are connected to")
        broker.budget.charge_log(msg.userid, len(msg.payload or b""))
        try:
            log.append_for(msg.userid, msg.text)
        except ValueError:
            raise _invalid_line() from None
        return EMPTY

    def forwarded(msg: Message) -> Empty:
        """Append lines of a follower: its own, or with a guest's userid the lines of that guest."""
        if msg.userid != broker.owner:
            broker.budget.charge_log(msg.userid, len(msg.payload or b""))
        for line in msg.text.split("\n"):
            append_line(line)
        return EMPTY

    def clear(_msg: Message) -> Empty:
        log.clear()
        return EMPTY

    def stats(_msg: Message) -> dict[str, Any]:
        return {"count": log.count, "ring-used": len(log.ring), "ring-size": log.ring.maxlen}

    methods = {"append": append, "forward": forwarded, "dmesg": readers.read, "clear": clear, "stats-get": stats}
    ctx.service("log", methods, open=("append",), requests=LOG)
    if broker.rank:
        forwarding = _Forwarding(ctx)
        log.forward, log.flush = forwarding, forwarding.send


def _invalid_line() -> RpcError:
    return RpcError(errno.EPROTO, "log.append: not an RFC 5424 line")


class _Readers:
    """The readers of the log: each gets the ring in portions, then each appended line."""

    def __init__(self, ctx: ModuleContext, log: Logbook) -> None:
        self._ctx = ctx
        self._log = log
        self._streams = ctx.streams("dmesg")
        ctx.streams("log.cancel")
        # Readers that have not received the whole ring yet, by their key in `_streams`.
        self._behind: set[tuple[bytes, int]] = set()
        self._streams.on_remove = lambda msg: self._behind.discard(self._streams.key(msg))
        log.followers.append(self._appended)

    def read(self, msg: Message) -> None:
        """Handle `log.dmesg {follow, nobacklog}`: a stream of lines. Without `follow`, it ends with ENODATA."""
        body: dict[str, Any] = msg.obj or {}
        follow = bool(body.get("follow"))
        self._streams.add(msg)
        if body.get("nobacklog"):
            self._finish(msg, follow)
        else:
            self._behind.add(self._streams.key(msg))
            self._send(msg, self._log.count - len(self._log.ring), None if follow else self._log.count)

    def _send(self, msg: Message, position: int, end: int | None) -> None:
        """Send a portion from line number `position` on, up to line `end` (None: up to the newest line)."""
        log = self._log
        last = log.count if end is None else end
        # Lines may have been dropped from the ring since the last portion, or the ring may have been cleared.
        oldest = log.count - len(log.ring)
        position = max(position, oldest)
        stop = max(position, min(position + PORTION, last))
        for line in islice(log.ring, position - oldest, stop - oldest):
            self._respond_line(msg, line)
        if stop < last:
            self._ctx.call(
                drain.TOPIC, drain.route_of(msg), lambda _reply: self._resume(msg, stop, end), self._ctx.rank
            )
        else:
            self._finish(msg, end is None)

    def _resume(self, msg: Message, position: int, end: int | None) -> None:
        if msg in self._streams:
            self._send(msg, position, end)

    def _finish(self, msg: Message, follow: bool) -> None:
        self._behind.discard(self._streams.key(msg))
        if not follow:
            self._streams.remove(msg)
            self._ctx.respond_error(msg, errno.ENODATA)

    def _respond_line(self, msg: Message, line: str) -> None:
        self._ctx.respond(msg, None, line.encode("utf-8", "replace") + b"\0")

    def _appended(self, line: str) -> None:
        for msg in self._streams:
            if self._streams.key(msg) not in self._behind:
                self._respond_line(msg, line)


class _Forwarding:
    """Forwarding of a follower's log lines to the leader. Lines that are not urgent are collected.

    A broker that starts or stops logs a dozen lines. One message per line from every broker would cost the leader a
    tenth of the boot time of a large instance.
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self._ctx = ctx
        # Lines by the guest that they are charged to at the leader; None: the broker's own.
        self._lines: dict[int | None, list[str]] = {}

    def __call__(self, level: int, line: str, userid: int | None) -> None:
        first = not self._lines
        self._lines.setdefault(userid, []).append(line)
        if level <= _URGENT:
            self._ctx.at_flush(self.send)
        elif first:
            self._ctx.call_later(_FORWARD_DELAY, self.send)

    def send(self) -> None:
        """Send all waiting lines."""
        waiting, self._lines = self._lines, {}
        for userid, lines in waiting.items():
            text = "\n".join(lines).encode("utf-8", "replace") + b"\0"
            self._ctx.call("log.forward", None, None, nodeid=0, payload=text, userid=userid)
