"""The operator's end of its connection to a MiniCluster's lead: requests and the stream of the lead's states.

The transport is ZeroMQ with CURVE: the lead accepts only the operator's key, before a byte of a message is parsed, and
the operator only the lead's key. A lost connection is made again; requests that were under way fail, and watching
continues. The messages are in `channel_messages`, the lead's end is in `pod.channel_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import zmq
import zmq.asyncio

from . import channel_messages as messages

# Milliseconds between two heartbeats, and without one after which the lead counts as lost.
_HEARTBEAT, _SILENCE = 15_000, 45_000


class ChannelError(Exception):
    """The lead refused a request, or could not be reached; the text is for users."""


class ChannelClient:
    """One connection to the lead at `address` (`tcp://HOST:PORT`), whose public key is `server_public`.

    `client_keys` are the operator's (public, secret); keys are Z85 text as bytes. A client belongs to one asyncio loop,
    and must be closed by `close`. Clients may share a `context`.
    """

    def __init__(
        self,
        address: str,
        server_public: bytes,
        client_keys: tuple[bytes, bytes],
        context: zmq.asyncio.Context | None = None,
    ) -> None:
        self._own_context = context is None
        self._context = context or zmq.asyncio.Context()
        self._socket = sock = self._context.socket(zmq.DEALER)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, client_keys[0])
        sock.setsockopt(zmq.CURVE_SECRETKEY, client_keys[1])
        sock.setsockopt(zmq.CURVE_SERVERKEY, server_public)
        sock.setsockopt(zmq.RECONNECT_IVL, 50)
        sock.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        sock.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT)
        sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE)
        sock.setsockopt(zmq.MAXMSGSIZE, messages.LARGEST)
        # A socket without a connection accepts no message, so that no request is kept for a later lead.
        sock.setsockopt(zmq.IMMEDIATE, 1)
        if "[" in address:
            sock.setsockopt(zmq.IPV6, 1)
        self._monitor = sock.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._connected = asyncio.Event()
        self._last = 0
        self._waiting: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        sock.connect(address)
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._follow_connection())]

    @property
    def connected(self) -> bool:
        """Whether the lead has accepted the connection, and it is alive."""
        return self._connected.is_set()

    async def request(self, op: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request once there is a connection; returns the response without its id.

        Raises ChannelError, also after `timeout` seconds.
        """
        try:
            return await asyncio.wait_for(self._request(op, fields), timeout)
        except asyncio.TimeoutError:
            raise ChannelError(f"the lead has not answered {op} within {timeout} s") from None

    async def _request(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        await self._connected.wait()
        id, answers = self._open()
        try:
            await self._send({"id": id, "op": op, **fields})
            return _checked(await answers.get())
        finally:
            self._waiting.pop(id, None)

    async def watch(self) -> AsyncIterator[dict[str, Any]]:
        """The lead's states, from the latest on, without an end; after a lost connection, a `state` "lost" comes first.

        Raises ChannelError if the lead refuses the watch.
        """
        while True:
            await self._connected.wait()
            id, answers = self._open()
            try:
                await self._send({"id": id, "op": "watch"})
                while True:
                    answer = await answers.get()
                    if answer.get("lost"):
                        yield {"state": "lost"}
                        break
                    yield _checked(answer)
            finally:
                self._waiting.pop(id, None)

    def close(self) -> None:
        """Close the connection; pending requests are cancelled with their tasks."""
        for task in self._tasks:
            task.cancel()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        if self._own_context:
            self._context.term()

    def _open(self) -> tuple[int, asyncio.Queue[dict[str, Any]]]:
        self._last += 1
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._waiting[self._last] = answers
        return self._last, answers

    async def _send(self, body: dict[str, Any]) -> None:
        await self._socket.send(messages.encode(body))

    async def _read(self) -> None:
        while True:
            data = await self._socket.recv()
            with contextlib.suppress(messages.MessageError):
                body = messages.decode(data)
                answers = self._waiting.get(body.pop("id", -1))
                if answers is not None:
                    answers.put_nowait(body)

    async def _follow_connection(self) -> None:
        while True:
            parts = await self._monitor.recv_multipart()
            event = int.from_bytes(parts[0][:2], "little")
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected.set()
                continue
            self._connected.clear()
            for answers in self._waiting.values():
                answers.put_nowait({"lost": True})


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("lost"):
        raise ChannelError("the connection to the lead was lost")
    if "error" in answer:
        raise ChannelError(str(answer["error"]))
    return answer
