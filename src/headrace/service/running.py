"""Discovery of a user's running services on this machine, for `headrace api url`.

Each service answers at an abstract unix socket, which has no file that could be left behind, or removed by a cleaner of
/tmp. Any user can connect to such a socket or take its name, so each side asks the kernel for the userid of its peer.
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

# Seconds to wait for the answer of a service.
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
                # The answer fits into the socket's buffer, so a peer that does not read cannot block this loop.
                asking.setblocking(False)
                asking.send(json.dumps(describe()).encode() + b"\n")


def found(table: str = "/proc/net/unix") -> list[dict[str, Any]]:
    """The answers of this user's running services, in the order of their process ids."""
    try:
        with open(table, encoding="utf-8", errors="replace") as file:
            names = re.findall(rf" @{re.escape(_prefix())}([0-9]+)$", file.read(), re.MULTILINE)
    except OSError:
        return []
    # A connection that is not accepted yet is listed with the same name, so duplicates are removed.
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
    """The userid of the process at the other end."""
    data = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
