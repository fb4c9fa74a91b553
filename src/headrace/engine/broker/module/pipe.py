"""The socket between a broker and a module in its own process.

It uses the framing of the local socket in both directions (RFC 3, RFC 5), and both ends use this file. Messages are
collected during a turn of the router and sent in one system call. Messages that are not requests, responses or events
are control messages, whose topic is the operation:

    module → broker   found {name, path}, running, failed {errnum, text}
    broker → module   start {name, path, uuid, args, rank, size, owner, attrs, config},
                      config {config}, attr {name, value or null}, remove

When either side closes the stream, the module ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message, MessageError

# Bytes of unread output at which the connection is closed.
DROP_AT = 256 << 20


def control(op: str, obj: dict[str, Any] | None = None) -> Message:
    """A control message of this socket."""
    return Message(m.CONTROL, op, obj)


class ModulePipe(asyncio.BufferedProtocol):
    """One end of the socket.

    `receive(msg)` gets every message. `lost(why)` is called once, with "" at a regular end of stream.
    """

    def __init__(
        self, router: Router, buffer: memoryview, receive: Callable[[Message], None], lost: Callable[[str], None]
    ) -> None:
        self._router = router
        self._buffer = buffer
        self._receive = receive
        self._lost = lost
        self._deframer = m.Deframer()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @property
    def closed(self) -> bool:
        return self._transport is None

    @property
    def unread(self) -> int:
        """The number of bytes that the other side has not read yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._deframer.feed(self._buffer[:nbytes])
        try:
            for msg in self._deframer:
                self._receive(msg)
        except MessageError as exc:
            self._give_up(str(exc))

    def send(self, msg: Message) -> None:
        """Queue `msg` to be written at the end of this turn. No effect if the other side is gone."""
        if self._transport is None:
            return
        if not self._out:
            self._router.at_turn_end(self.flush)
        self._out.append(m.frame(msg))
        msg.forget_payload()

    def flush(self) -> None:
        out, self._out = self._out, []
        transport = self._transport
        if transport is None or not out:
            return
        transport.write(b"".join(out))
        if transport.get_write_buffer_size() > DROP_AT:
            self._give_up(f"{DROP_AT >> 20} MiB were left unread")

    def _give_up(self, why: str) -> None:
        self._why = why
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._lost(self._why)

    def close(self) -> None:
        """Write all pending messages and close. `lost` is called when they are written."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
