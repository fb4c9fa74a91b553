"""What holds for every request before a route sees it, and for every response.

A page of another site may send requests to this service from a user's browser. So the service answers to its own names
only, which another site cannot give to an address of its own (DNS rebinding), and takes changes from its own pages or
from programs, which send neither `Origin` nor `Sec-Fetch-Site`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Bytes of a request's body.
BODY_LIMIT = 1 << 20
# A header `Host` (RFC 9110 section 7.2), whose name has no characters that names of machines have not.
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(:(?P<port>[0-9]{0,5}))?", re.ASCII)
_LARGEST_PORT = (1 << 16) - 1
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Cut(Exception):
    """Raised by a response that has begun and cannot go on: its connection is closed, by which clients know that it is
    not whole.
    """


class Guard:
    """The application behind these rules; `hosts` are the names of the service, empty for any."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, why = self._refusal(scope["method"], Headers(scope=scope))
        if status:
            await PlainTextResponse(why + "\n", status)(scope, receive, send)
            return
        taken = 0

        async def receive_bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > BODY_LIMIT:
                raise HTTPException(413, f"the body is larger than {BODY_LIMIT} bytes")
            return message

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        with contextlib.suppress(Cut):
            await self._app(scope, receive_bounded, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str]:
        given = headers.getlist("host")
        host = given[0] if given else ""
        parts = _HOST.fullmatch(host)
        if len(given) > 1 or parts is None or int(parts["port"] or 0) > _LARGEST_PORT:
            return 400, f"a request has one header Host, NAME or NAME:PORT, not {', '.join(map(repr, given))}"
        name = parts["name"].lower()
        if self._hosts and name not in self._hosts:
            return 421, f"this service is not called '{name}'"
        if method in SAFE_METHODS:
            return 0, ""
        origin = headers.get("origin")
        if origin is not None:
            same = urlsplit(origin).netloc == host
        else:
            same = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        return (0, "") if same else (403, "this request comes from a page of another site")
