"""An HTTP server that answers like an API server where a test says so: refusals, broken and lagging watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from headrace.k8s.runtime.api import Api
from headrace.k8s.runtime.credentials import Cluster, Identity

Object = dict[str, Any]


class HttpApi:
    """`requests` has (method, path, query, body) of each request. `answers` take the next ones: (status, body, which
    may be bytes); watches
    take from `events` until None, which ends the connection in order, or an exception, which breaks it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.tokens: list[str] = []
        self.answers: list[tuple[int, Any]] = []
        self.watches: list[asyncio.Queue[Any]] = []
        self.watched: asyncio.Queue[asyncio.Queue[Any]] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path, dict(request.query), body))
        self.tokens.append(request.headers.get("Authorization", ""))
        if "watch" in request.query:
            return await self._watch(request)
        status, answer = self.answers.pop(0) if self.answers else (200, {})
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status, content_type="application/json")
        return web.json_response(answer, status=status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self.answers and self.answers[0][0] >= 300:
            status, answer = self.answers.pop(0)
            return web.json_response(answer, status=status)
        events: asyncio.Queue[Any] = asyncio.Queue()
        self.watched.put_nowait(events)
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await events.get()) is not None:
            if isinstance(event, Exception):
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        return response


@contextlib.asynccontextmanager
async def served(identity: Identity | None = None) -> AsyncIterator[tuple[HttpApi, Api]]:
    """The server, and a client of it."""
    http = HttpApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", http.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with Api(Cluster(f"http://127.0.0.1:{port}", identity or Identity(token="secret"))) as api:
        try:
            yield http, api
        finally:
            await runner.cleanup()


def run(test: Callable[[HttpApi, Api], Any]) -> None:
    async def inside() -> None:
        async with served() as (http, api):
            await test(http, api)

    asyncio.run(inside())
