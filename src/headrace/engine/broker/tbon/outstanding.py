"""Requests sent over one link that wait for their last response.

If the link breaks, both ends clean up. The requesting end responds with errors in place of the lost neighbour. The
other end sends services the disconnect requests that the lost senders cannot send any more (RFC 6). An entry is removed
with its last response, and all entries of a sender with its disconnect request. So only requests with a waiting sender
are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.process.garbage import shrink
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Requests to remove from a sender's table before it is shrunk.
_MANY = 10_000


def sender_of(msg: Message) -> bytes:
    """The sender of a request or of a response's request: the first route, b"" without routes."""
    return msg.routes[0] if msg.routes else b""


class Outstanding:
    """Requests by sender and matchtag. Matchtags are unique only for one sender."""

    def __init__(self) -> None:
        self._senders: dict[bytes, dict[int, Message]] = {}
        self._forgotten = 0

    def passed(self, request: Message, sender: bytes) -> None:
        """Store a `request` of `sender` that was sent over the link.

        A disconnect request removes those of its sender.
        """
        if not request.flags & m.FLAG_NORESPONSE:
            tags = self._senders.get(sender)
            if tags is None:
                self._senders[sender] = {request.aux2: request}
            else:
                tags[request.aux2] = request
        elif request.topic.endswith(".disconnect"):
            self._senders.pop(sender, None)

    def answered(self, response: Message, sender: bytes) -> None:
        """Handle a `response` on its way back: remove its request unless more responses follow."""
        if response.aux1 or not response.flags & m.FLAG_STREAMING:
            self.forget(sender, response.aux2)

    def forget(self, sender: bytes, matchtag: int) -> None:
        """Remove a request whose sender no longer waits for a response."""
        tags = self._senders.get(sender)
        if tags is not None:
            tags.pop(matchtag, None)
            self._forgotten += 1
            if not tags:
                del self._senders[sender]
            elif self._forgotten % _MANY == 0:
                shrink(tags)

    def take(self) -> list[Message]:
        """Remove and return all requests."""
        requests = [msg for tags in self._senders.values() for msg in tags.values()]
        self._senders.clear()
        return requests

    def __len__(self) -> int:
        return sum(map(len, self._senders.values()))


def disconnects(requests: list[Message]) -> Iterator[Message]:
    """A disconnect request for each sender, service and broker in `requests`, with the same routes."""
    seen = set()
    for msg in requests:
        service, upstream = msg.topic.rpartition(".")[0], msg.flags & m.FLAG_UPSTREAM
        key = (sender_of(msg), service, msg.aux1, upstream)
        if service and key not in seen:
            seen.add(key)
            note = m.request(
                service + ".disconnect", None, msg.aux1, flags=upstream, userid=msg.userid, rolemask=msg.rolemask
            )
            note.routes = msg.routes[:]
            yield note
