"""The methods that no route has to know of: HEAD and OPTIONS, and the header `Allow` (RFC 9110 sections 9.3.2, 9.3.7
and 10.2.1).
"""

from __future__ import annotations

import contextlib

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Those that routes may have.
_OF_ROUTES = ("GET", "POST", "PUT", "PATCH", "DELETE")


class _Answered(Exception):
    """Raised to a response whose headers were sent, of which no more is wanted."""


class Methods:
    """The application, in which a path with GET has HEAD, and any path OPTIONS."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Routers write into the scope which part of the path they have read.
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
            # The server looks into its own scope for HEAD.
            with contextlib.suppress(_Answered):
                await self._app({**scope, "method": "GET"}, receive, send_headers)
        else:
            await self._app(scope, receive, send_allowed)


def _allowed(scope: Scope) -> list[str]:
    """The methods that the path of a request has; none for a path that is not there."""
    found = [method for method in _OF_ROUTES if _has(scope, method)]
    if "GET" in found:
        found.insert(1, "HEAD")
    return [*found, "OPTIONS"] if found else []


def _has(scope: Scope, method: str) -> bool:
    # A mount takes any method; the files of this one are read only.
    routes = (one for one in scope["app"].routes if method == "GET" or not isinstance(one, Mount))
    return any(one.matches({**scope, "method": method})[0] is Match.FULL for one in routes)
