"""ASGI middleware: checks on every request before a route sees it, and headers of every response.

`Guard` refuses requests, `Methods` answers HEAD and OPTIONS, and `Forwarded` applies the headers of a proxy.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The largest request body in bytes.
BODY_LIMIT = 1 << 20
# A header `Host` (RFC 9110 section 7.2). The name may only have characters of host names and addresses.
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
    """Raised by a response that has begun and cannot continue.

    Its connection is closed, so clients see that the response is incomplete.
    """


class Guard:
    """Middleware that refuses unknown host names, changes from pages of other sites, and large bodies.

    `hosts` are the service's names. If it is empty, any name is accepted. A page of another site can send requests to
    this service from a user's browser. So the service answers only to its own names, which protects against DNS
    rebinding, and accepts changes only from its own pages and from programs, which send neither `Origin` nor
    `Sec-Fetch-Site`.
    """

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


# The methods that routes can have.
_OF_ROUTES = ("GET", "POST", "PUT", "PATCH", "DELETE")


class _Answered(Exception):
    """Raised to skip the body of a response to HEAD, once a GET route has sent the headers."""


class Methods:
    """Middleware that adds HEAD to paths with GET, OPTIONS to all paths, and `Allow` to 405 responses.

    RFC 9110 sections 9.3.2, 9.3.7 and 10.2.1.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A copy of the scope, because routers record in it which part of the path they matched.
        path = dict(scope)

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 405:
                MutableHeaders(scope=message)["Allow"] = ", ".join(_allowed(path))
            await send(message)

        async def send_headers(message: Message) -> None:
            await send_allowed(message)
            await send({"type": "http.response.body"})
            raise _Answered

        if scope["method"] == "OPTIONS" and (methods := _allowed(path)):
            await Response(status_code=204, headers={"Allow": ", ".join(methods)})(scope, receive, send)
        elif scope["method"] == "HEAD":
            # The server's own scope still has HEAD, so it sends no body.
            with contextlib.suppress(_Answered):
                await self._app({**scope, "method": "GET"}, receive, send_headers)
        else:
            await self._app(scope, receive, send_allowed)


def _allowed(scope: Scope) -> list[str]:
    """The methods that a request's path supports; empty for an unknown path."""
    found = [method for method in _OF_ROUTES if _has(scope, method)]
    if "GET" in found:
        found.insert(1, "HEAD")
    return [*found, "OPTIONS"] if found else []


def _has(scope: Scope, method: str) -> bool:
    # A mount matches any method. The only mount has static files, which support GET alone.
    routes = (one for one in scope["app"].routes if method == "GET" or not isinstance(one, Mount))
    return any(one.matches({**scope, "method": method})[0] is Match.FULL for one in routes)


_ENTRY = re.compile(r"\[(?P<v6>[^]]*)\](?::\d+)?|(?P<v4>[0-9.]+):\d+")


class Forwarded:
    """Middleware that takes a request's client address and scheme from the headers of a proxy.

    A proxy appends the address that it saw to the client's own `X-Forwarded-For`, so only the last entry is from the
    proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme = _last(scope, b"x-forwarded-proto").lower()
            address = address_of(_last(scope, b"x-forwarded-for"))
            scope = {**scope, **({"scheme": scheme} if scheme in ("http", "https") else {})}
            if address:
                scope["client"] = (address, 0)
        await self._app(scope, receive, send)


def _last(scope: Scope, name: bytes) -> str:
    """The last entry of a header, "" without the header."""
    values = [value for known, value in scope["headers"] if known == name]
    return values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""


def address_of(text: str) -> str:
    """The IP address of an entry, which may have brackets and a port; "" if it is not an address."""
    found = _ENTRY.fullmatch(text)
    try:
        return str(ipaddress.ip_address((found["v6"] or found["v4"]) if found else text))
    except ValueError:
        return ""
