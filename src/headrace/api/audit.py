"""The audit: a line of JSON for each change that was asked for, and for each request that was refused.

It has who, from where, which path, and how it ended, but nothing of query, headers or body, in which passwords, tokens
and environments come. Since every request passes here, no route can forget it.
"""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.guard import SAFE_METHODS
from headrace.api.identity.credential import Identity

# Refusals of requests that would change nothing.
_REFUSALS = (401, 403, 404, 421, 429)
_TAIL = 1 << 20


class Audit:
    """The application, whose requests are told of in the file `path`."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        # Each line is one write to the end of the file, so that lines of several processes stay whole.
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The dictionary that `request.state` writes to.
        state = scope.setdefault("state", {})
        status = 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["method"] not in SAFE_METHODS or status in _REFUSALS:
                    self._write(scope, state, status)
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            if not status and scope["method"] not in SAFE_METHODS:
                self._write(scope, state, 500)
            raise

    def _write(self, scope: Scope, state: dict[str, Any], status: int) -> None:
        identity: Identity | None = state.get("identity")
        client = scope.get("client")
        line = {
            "time": time.time(),
            "user": state.get("login") or (identity.name if identity else None),
            "userid": identity.userid if identity else None,
            "address": client[0] if client else "unix",
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            **({"job": state["job"]} if "job" in state else {}),
        }
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def last(path: str, count: int) -> list[dict[str, Any]]:
    """The last lines of an audit, the newest first; of the file's last MiB."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        lines = file.read().splitlines()[1 if size > _TAIL else 0 :]
    return [msgspec.json.decode(line) for line in reversed(lines[-count:] if count else [])]
