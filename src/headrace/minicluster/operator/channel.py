"""The operator's end of the channel to a lead: requests, and the stream of the lead's states.

The transport is ZeroMQ with CURVE: the lead accepts only the operator's key, before a byte of a message is parsed, and
the operator accepts only the lead's key. After a lost connection, the client reconnects: pending requests fail, and the
watch continues. The messages are in `minicluster.api.channel_messages`, the lead's end is in
`minicluster.run.pod.channel_server`.

The owner of a MiniCluster has the lead's key and may send anything. So a client handles one message in each turn of its
loop, and stops reading from a lead that sends too many messages or an invalid one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import zmq
import zmq.asyncio

from ..api import channel_messages as messages
from .channel_relay import Budget, Relay

# Milliseconds between two heartbeats, and without a heartbeat until the lead counts as lost.
_HEARTBEAT, _SILENCE = 15_000, 45_000
# Limit for a lead's messages: rate per second and burst. The burst allows for messages that accumulate while the
# operator does not read. A state is sent at most twice a second.
_MESSAGES = (10, 200)
# Messages that ZeroMQ queues in each direction.
_KEPT = 64


class ChannelError(Exception):
    """The lead refused a request or cannot be reached; the text is for users."""


class ChannelClient:
    """One connection to the lead at `address` (`tcp://HOST:PORT`), whose public key is `server_public`.

    `client_keys` are the operator's (public, secret); keys are Z85 text as bytes. A client belongs to one asyncio loop,
    and must be closed by `close`. Clients may share a `context`. If the lead breaks the channel's rules, the client
    stops reading and calls `broken` once with a description; the caller must then close the client.
    """

    def __init__(
        self,
        address: str,
        server_public: bytes,
        client_keys: tuple[bytes, bytes],
        context: zmq.asyncio.Context | None = None,
        broken: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._broken = broken
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
        sock.setsockopt(zmq.MAXMSGSIZE, messages.LARGEST_OF_LEAD)
        sock.setsockopt(zmq.RCVHWM, _KEPT)
        sock.setsockopt(zmq.SNDHWM, _KEPT)
        # A socket without a connection accepts no message, so that no request is queued for a later lead.
        sock.setsockopt(zmq.IMMEDIATE, 1)
        self._monitor = sock.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._connected = asyncio.Event()
        self._last = 0
        self._waiting: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._relay = Relay(host.strip("[]"), int(port))
        sock.connect(self._relay.address)
        steps = (self._carry(), self._read(), self._follow_connection())
        self._tasks = [asyncio.ensure_future(one) for one in steps]

    @property
    def connected(self) -> bool:
        """Whether the lead has accepted the connection, and the connection is alive."""
        return self._connected.is_set()

    async def request(self, op: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request as soon as the client is connected; return the response without its id.

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
        """Yield the lead's current state and every later one, without an end.

        When the connection is lost, yields the `state` "lost". Raises ChannelError if the lead refuses the watch.
        """
        while True:
            await self._connected.wait()
            id, answers = self._open()
            try:
                await self._send({"id": id, "op": "watch"})
                while True:
                    answer = await answers.get()
                    if answer is _LOST:
                        yield {"state": "lost"}
                        break
                    yield _checked(answer)
            finally:
                self._waiting.pop(id, None)

    def close(self) -> None:
        """Close the connection; pending requests are cancelled with their tasks."""
        for task in self._tasks:
            task.cancel()
        self._relay.close()
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

    async def _carry(self) -> None:
        self._broken(f"the lead {await self._relay.run()}")

    async def _read(self) -> None:
        budget, loop = Budget(*_MESSAGES), asyncio.get_running_loop()
        while True:
            data = await self._socket.recv()
            if not budget.spend(1, loop.time()):
                self._broken(f"the lead sent more than {_MESSAGES[0]} messages a second")
                return
            try:
                body = messages.decode(data)
            except messages.MessageError as exc:
                self._broken(f"the lead sent an invalid message: {exc}")
                return
            id = body.pop("id", None)
            if isinstance(id, int) and id in self._waiting:
                self._waiting[id].put_nowait(body)
            # Receiving a queued message does not yield to the loop. This lets other tasks run.
            await asyncio.sleep(0)

    async def _follow_connection(self) -> None:
        while True:
            parts = await self._monitor.recv_multipart()
            event = int.from_bytes(parts[0][:2], "little")
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected.set()
                continue
            self._connected.clear()
            for answers in self._waiting.values():
                answers.put_nowait(_LOST)


# The item in a queue of answers that reports a lost connection.
_LOST: dict[str, Any] = {}


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer is _LOST:
        raise ChannelError("the connection to the lead was lost")
    if "error" in answer:
        raise ChannelError(str(answer["error"])[: messages.LONGEST_ERROR])
    return answer
