"""The open streaming requests of a module (RFC 6)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.tbon.outstanding import sender_of
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


class Responder(Protocol):
    """The part of a module's context with which a StreamSet responds."""

    def respond(self, msg: Message, obj: dict[str, Any] | None = None) -> None: ...
    def respond_error(self, msg: Message, errnum: int, text: str = "") -> None: ...


class StreamSet:
    """The open streaming requests of one method.

    An entry is removed by a cancel, a disconnect, or its last response.
    """

    def __init__(self, ctx: Responder) -> None:
        self._ctx = ctx
        self._entries: dict[tuple[bytes, int], Message] = {}
        self.on_remove: Callable[[Message], None] = lambda _msg: None

    @staticmethod
    def key(msg: Message) -> tuple[bytes, int]:
        return (sender_of(msg), msg.matchtag)

    def add(self, msg: Message) -> None:
        """Add a streaming request. Raises RpcError(EPROTO) for any other request (RFC 6)."""
        if not msg.flags & m.FLAG_STREAMING:
            raise RpcError(errno.EPROTO)
        self._entries[self.key(msg)] = msg

    def remove(self, msg: Message) -> None:
        """Forget an entry without a response."""
        if self._entries.pop(self.key(msg), None) is not None:
            self.on_remove(msg)

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, msg: Message) -> bool:
        return self.key(msg) in self._entries

    def send(self, obj: dict[str, Any]) -> None:
        """Send the same response to every entry."""
        for msg in self:
            self._ctx.respond(msg, obj)

    def cancel(self, sender: bytes, matchtag: int | None) -> None:
        """End one entry of `sender` with ENODATA, or drop all its entries if `matchtag` is None (disconnect)."""
        for key, msg in list(self._entries.items()):
            if key[0] == sender and matchtag in (None, key[1]):
                del self._entries[key]
                if matchtag is not None:
                    self._ctx.respond_error(msg, errno.ENODATA)
                self.on_remove(msg)
