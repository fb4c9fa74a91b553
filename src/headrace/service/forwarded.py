"""Requests that a proxy before the service passes on: whose they are and how they came, as the proxy says.

A proxy adds the address that it has seen to what the client has sent of `X-Forwarded-For`, so the last entry alone is
the proxy's word; all before it can be anything.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.types import ASGIApp, Receive, Scope, Send

_PORT = re.compile(r"\[(?P<v6>[^]]*)\](?::\d+)?|(?P<v4>[0-9.]+):\d+")


class Forwarded:
    """The application behind a proxy."""

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
    """The last entry of a header, "" without one."""
    values = [value for known, value in scope["headers"] if known == name]
    return values[-1].decode("latin-1").rpartition(",")[2].strip() if values else ""


def address_of(text: str) -> str:
    """The address in an entry, which may have brackets and a port; "" for what is none."""
    found = _PORT.fullmatch(text)
    try:
        return str(ipaddress.ip_address((found["v6"] or found["v4"]) if found else text))
    except ValueError:
        return ""
