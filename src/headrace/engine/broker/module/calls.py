"""The requests that a module has sent, and its callbacks for their responses (RFC 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# A pending call: the callback for its responses, the topic if it is streaming, otherwise "", and the rank it was sent
# to.
_Call = tuple[Callable[[Message], Any], str, int]
_NO_CALL: _Call = (lambda _msg: None, "", m.NODEID_ANY)


class Calls:
    """The calls of one module, by matchtag.

    `send` routes a request. `route` is the module's address in route stacks. Credentials default to those of the
    instance's `owner`.
    """

    def __init__(self, router: Router, route: bytes, owner: int, send: Callable[[Message], None]) -> None:
        self._router = router
        self._route = route
        self._owner = owner
        self._send = send
        self.pending: dict[int, _Call] = {}
        # Each job that waits for resources has such a stream. Thousands of equal tuples share one object.
        self._last_stream = _NO_CALL
        self._next_tag = 0

    def call(
        self,
        topic: str,
        obj: Mapping[str, Any] | None = None,
        on_reply: Callable[[Message], Any] | None = None,
        nodeid: int = m.NODEID_ANY,
        streaming: bool = False,
        payload: bytes | None = None,
        flags: int = 0,
        userid: int | None = None,
        rolemask: int | None = None,
    ) -> int:
        """Send a request. `on_reply` gets every response. Returns the matchtag.

        Credentials default to the owner's.
        """
        tag = 0
        if on_reply is not None:
            tag = self._next_tag = self._next_tag % 0xFFFFF + 1
            while tag in self.pending:
                tag = self._next_tag = self._next_tag % 0xFFFFF + 1
            if streaming:
                flags |= m.FLAG_STREAMING
                stream = (on_reply, topic, nodeid)
                if stream != self._last_stream:
                    self._last_stream = stream
                self.pending[tag] = self._last_stream
            else:
                self.pending[tag] = (on_reply, "", nodeid)
        msg = m.request(
            topic,
            obj,
            nodeid,
            tag,
            flags,
            self._owner if userid is None else userid,
            m.ROLE_OWNER | m.ROLE_LOCAL if rolemask is None else rolemask,
            payload,
        )
        msg.routes.append(self._route)
        self._send(msg)
        return tag

    async def rpc(self, topic: str, obj: dict[str, Any] | None = None, nodeid: int = m.NODEID_ANY) -> Any:
        """Send a request and wait for the response. Returns its object (None without a body). Raises RpcError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(reply: Message) -> None:
            if future.done():
                return
            if reply.errnum:
                future.set_exception(RpcError(reply.errnum, reply.text))
            else:
                future.set_result(reply.obj)

        self.call(topic, obj, done, nodeid)
        return await future

    def cancel(self, matchtag: int) -> None:
        """Ask the service to end a streaming call. Its last response (ENODATA) still arrives."""
        _, topic, nodeid = self.pending.get(matchtag, _NO_CALL)
        if topic:
            self.call(topic + "-cancel", {"matchtag": matchtag}, None, nodeid)

    def forget(self, matchtag: int) -> None:
        """Drop the callback of a call; later responses are ignored."""
        _, topic, _ = self.pending.pop(matchtag, _NO_CALL)
        if topic:
            self._router.forget(topic, self._route, matchtag)

    def callback(self, reply: Message) -> Callable[[Message], Any] | None:
        """The callback for a response, or None if no call waits for it. The last response ends the call."""
        tag = reply.aux2
        call = self.pending.get(tag)
        if call is None:
            return None
        if reply.aux1 or not reply.flags & m.FLAG_STREAMING:
            del self.pending[tag]
        return call[0]

    def streaming(self) -> Iterator[tuple[str, int]]:
        """Service and rank of each streaming call."""
        for _, topic, nodeid in self.pending.values():
            if topic:
                yield topic.rpartition(".")[0], nodeid
