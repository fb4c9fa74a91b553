"""A relay between the operator's ZeroMQ socket and a lead, which limits how fast the lead may send.

A lead runs in a user's container and may send anything. ZeroMQ limits the number of messages that it queues, but not
the parts of an unfinished message, and it decrypts as fast as bytes arrive. So the relay counts the bytes before they
reach ZeroMQ. The ZeroMQ socket connects to an abstract Unix socket of the relay, and the relay connects to the lead.
All traffic is encrypted end to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

# Timeout in seconds for connecting to the lead.
_CONNECT_TIMEOUT = 5.0
# Backoff in seconds between two connections: doubled with each one that fails or is lost soon, up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# A connection that lasts this many seconds resets the backoff.
_HELD = 10.0
# Limits for a lead, each as rate per second and burst: bytes that it sends, and connections. The burst allows for data
# that accumulates while the operator does not read. A state is sent at most twice a second and has less than 6 kB.
_BYTES, _CONNECTIONS = (32_768, 262_144), (1 / 30, 5)
_CHUNK = 16_384
# ZeroMQ reconnects within this many seconds, unless the other side has violated its protocol: then it never does.
_RECONNECTS = 5.0

_T = TypeVar("_T")


class Budget:
    """A token bucket with `burst` tokens, refilled at `rate` per second.

    Pure: time is an argument, in seconds.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, 0.0

    def spend(self, amount: float, now: float) -> bool:
        """Take `amount` tokens; return whether there were enough."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - amount
        self._at = now
        return self._tokens >= 0


class Relay:
    """A relay to the lead at `host` and `port`. One ZeroMQ socket connects to `address` (ipc://@NAME)."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        name = f"headrace-channel-{os.urandom(16).hex()}"
        self.address = f"ipc://@{name}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen(4)
        self._listener.setblocking(False)
        self._runs = False

    def close(self) -> None:
        """Close a relay whose `run` was never called; `run` itself closes the relay when it ends."""
        if not self._runs:
            self._listener.close()

    async def run(self) -> str:
        """Relay bytes until cancelled, or until the lead exceeds a limit; return which one, as text."""
        self._runs = True
        loop = asyncio.get_running_loop()
        budget, connections = Budget(*_BYTES), Budget(*_CONNECTIONS)
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    near, _ = await _within(_RECONNECTS, loop.sock_accept(self._listener))
                except asyncio.TimeoutError:
                    return "violated the protocol of the channel"
                began = loop.time()
                with near:
                    far = await _connection(self._host, self._port)
                    if far is not None:
                        with far:
                            if not await _carry(near, far, budget):
                                return f"sent more than {_BYTES[0] // 1024} KiB a second"
                        if not connections.spend(1, loop.time()):
                            return "closed and opened connections too often"
                pause = _FIRST_PAUSE if loop.time() - began > _HELD else min(2 * pause, _LONGEST_PAUSE)
                await asyncio.sleep(pause)
        finally:
            self._listener.close()


async def _within(seconds: float, action: Coroutine[Any, Any, _T]) -> _T:
    """The result of `action`, which is cancelled after `seconds`. Raises asyncio.TimeoutError.

    Unlike `asyncio.wait_for` before CPython 3.12, this function never swallows the cancellation of its task.
    """
    task = asyncio.ensure_future(action)
    try:
        if not (await asyncio.wait([task], timeout=seconds))[0]:
            raise asyncio.TimeoutError
    finally:
        task.cancel()
    return task.result()


async def _connection(host: str, port: int) -> socket.socket | None:
    """A connection to the lead; None if the lead cannot be reached."""
    try:
        return await _within(_CONNECT_TIMEOUT, _connect(host, port))
    except (OSError, asyncio.TimeoutError):
        return None


async def _carry(near: socket.socket, far: socket.socket, budget: Budget) -> bool:
    """Relay bytes both ways until one connection ends; return False if `far` exceeded `budget`."""
    loop = asyncio.get_running_loop()
    within = True

    def is_within(amount: int) -> bool:
        nonlocal within
        within = budget.spend(amount, loop.time())
        return within

    near.setblocking(False)
    directions = [
        asyncio.ensure_future(_pump(near, far, lambda amount: True)),
        asyncio.ensure_future(_pump(far, near, is_within)),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in directions:
            one.cancel()
        # Wait for the tasks: a socket may be closed only when the loop no longer waits for it.
        await asyncio.gather(*directions, return_exceptions=True)
    return within


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _pump(source: socket.socket, target: socket.socket, is_within: Callable[[int], bool]) -> None:
    """Relay bytes one way until the source ends, a connection is lost, or `is_within` returns False."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _CHUNK):
            if not is_within(len(data)):
                return
            await loop.sock_sendall(target, data)
            # Both calls may return without yielding to the loop. This lets the relays of other leads run.
            await asyncio.sleep(0)
