"""Carries the bytes between the operator's ZeroMQ socket and a lead, and counts those that the lead sends.

A lead runs in the container of a user, who may send anything. ZeroMQ bounds the messages that it keeps, but not the
parts of an unfinished one, and decrypts as fast as bytes come; so the bytes are counted before ZeroMQ has them. The
socket connects to an abstract Unix socket, and the relay makes the connection to the lead for it. What passes is
encrypted end to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

# Seconds that a connection to the lead may take to be made.
_CONNECT_TIMEOUT = 5.0
# Seconds between two connections: doubled with each that fails or is lost soon, up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# Seconds after which a connection counts as one that held.
_HELD = 10.0
# What a lead may do in a second in the long run, and at once, as after a time in which the operator did not read: send
# bytes, and have a connection made. A state comes at most twice a second and has less than 6 kB.
_BYTES, _CONNECTIONS = (32_768, 262_144), (1 / 30, 5)
_CHUNK = 16_384
# Seconds in which ZeroMQ connects again, unless the other side has broken its protocol: then it never does.
_RECONNECTS = 5.0

_T = TypeVar("_T")


class Budget:
    """A token bucket: `burst` at once, `rate` a second in the long run. Pure: time is an argument, in seconds."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, 0.0

    def spend(self, amount: float, now: float) -> bool:
        """Take `amount`; returns whether there was so much."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - amount
        self._at = now
        return self._tokens >= 0


class Relay:
    """A relay to the lead at `host` and `port` for one ZeroMQ socket, which connects to `address` (ipc://@NAME)."""

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
        """Close a relay that does not run; one that runs is closed by its end."""
        if not self._runs:
            self._listener.close()

    async def run(self) -> str:
        """Carry bytes until cancelled, or until the lead does more than it may; returns what that was."""
        self._runs = True
        loop = asyncio.get_running_loop()
        budget, connections = Budget(*_BYTES), Budget(*_CONNECTIONS)
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    near, _ = await _within(_RECONNECTS, loop.sock_accept(self._listener))
                except asyncio.TimeoutError:
                    return "did not keep to the protocol of the channel"
                began = loop.time()
                with near:
                    far = await _connection(self._host, self._port)
                    if far is not None:
                        with far:
                            if not await _carry(near, far, budget):
                                return f"sent more than {_BYTES[0] // 1024} KiB a second"
                        if not connections.spend(1, loop.time()):
                            return "closed its connections again and again"
                pause = _FIRST_PAUSE if loop.time() - began > _HELD else min(2 * pause, _LONGEST_PAUSE)
                await asyncio.sleep(pause)
        finally:
            self._listener.close()


async def _within(seconds: float, action: Coroutine[Any, Any, _T]) -> _T:
    """The result of an action that may take so long. Raises asyncio.TimeoutError.

    Unlike `asyncio.wait_for` before CPython 3.12, this is always cancelled with its task.
    """
    task = asyncio.ensure_future(action)
    try:
        if not (await asyncio.wait([task], timeout=seconds))[0]:
            raise asyncio.TimeoutError
    finally:
        task.cancel()
    return task.result()


async def _connection(host: str, port: int) -> socket.socket | None:
    """A connection to the lead; None if none could be made."""
    try:
        return await _within(_CONNECT_TIMEOUT, _connect(host, port))
    except (OSError, asyncio.TimeoutError):
        return None


async def _carry(near: socket.socket, far: socket.socket, budget: Budget) -> bool:
    """Carry bytes both ways until one connection ends; returns False if `far` has sent more than `budget` has."""
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
        # A socket is closed only when the loop no longer waits for it.
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
    """Carry bytes one way until the source ends, a connection is lost, or `is_within` refuses an amount."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _CHUNK):
            if not is_within(len(data)):
                return
            await loop.sock_sendall(target, data)
            # Both calls return at once where there are bytes and room; other leads have their turn in between.
            await asyncio.sleep(0)
