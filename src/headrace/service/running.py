"""The services of one user on this machine: each answers at an abstract unix socket, where `headrace api url` asks.

An abstract socket has no file that could stay behind, or be removed by a cleaner of /tmp. Anybody may connect to it or
take its name, so each side asks the kernel whose process is at the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
from collections.abc import Callable
from typing import Any

# Seconds that a service has to answer.
_TIMEOUT = 5.0
_LONGEST = 1 << 16
_CREDENTIALS = struct.Struct("3i")


def listen() -> socket.socket:
    """The socket of this process. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(f"\0{_prefix()}{os.getpid()}")
        made.listen()
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


async def answer(listening: socket.socket, describe: Callable[[], dict[str, str]]) -> None:
    """Send what `describe` returns to each process of this user that connects."""
    loop = asyncio.get_running_loop()
    while True:
        asking, _ = await loop.sock_accept(listening)
        with asking, contextlib.suppress(OSError):
            if _userid(asking) == os.geteuid():
                # It fits into the buffer of a socket, so that nobody is waited for.
                asking.setblocking(False)
                asking.send(json.dumps(describe()).encode() + b"\n")


def found(table: str = "/proc/net/unix") -> list[dict[str, Any]]:
    """What the running services of this user answer, by their process ids."""
    try:
        with open(table, encoding="utf-8", errors="replace") as file:
            names = re.findall(rf" @{re.escape(_prefix())}([0-9]+)$", file.read(), re.MULTILINE)
    except OSError:
        return []
    # A connection that was not accepted yet has the name, too.
    answers = [_ask(pid) for pid in sorted(set(map(int, names)))]
    return [one for one in answers if one is not None]


def _ask(pid: int) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_TIMEOUT)
        try:
            asking.connect(f"\0{_prefix()}{pid}")
            if _userid(asking) != os.geteuid():
                return None
            with asking.makefile("rb") as answers:
                found = json.loads(answers.readline(_LONGEST))
        except (OSError, ValueError):
            return None
    return found if isinstance(found, dict) else None


def _prefix() -> str:
    return f"headrace-api-{os.geteuid()}-"


def _userid(connected: socket.socket) -> int:
    """Whose process is at the other end."""
    data = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
