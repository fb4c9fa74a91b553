"""The admission webhook: an HTTPS server that passes the reviews of each path to its handler.

It is an aiohttp.web application, because the operator already uses that library for its client. The certificate can be
replaced while the server runs: new connections get the new one (`SSLContext.load_cert_chain`). A review that fails is
an HTTP error, which the API server treats as a rejection of the request (failurePolicy Fail).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from ..api import decoded
from .certificates import Pair
from .reviews import BadReview, Handler, parse, response

# Bytes of a review. It contains the object twice, each at most as large as a request to etcd (1.5 MiB), and more.
_LARGEST = 4 * 2**20
# Bytes above which a review is judged in a thread, so that it does not block the event loop.
_LARGE = 64 * 2**10

log = logging.getLogger(__name__)


def application(handlers: Mapping[str, Handler]) -> web.Application:
    """The webhook as a web application; `handlers` are by the paths that the configurations name."""
    app = web.Application(client_max_size=_LARGEST)
    for path, handler in handlers.items():
        app.router.add_post(path, _answering(handler))
    return app


def _answering(handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            review = await handler.complete(parse(decoded(body)))
            large = len(body) > _LARGE
            verdict = await asyncio.to_thread(handler.judge, review) if large else handler.judge(review)
        except (msgspec.DecodeError, RecursionError) as exc:
            return web.Response(status=400, text=f"{exc}\n")
        except BadReview as exc:
            return web.Response(status=exc.status, text=f"{exc}\n")
        if verdict.refusal is not None:
            about = {"namespace": review.namespace, "resource": review.resource, "object": review.name}
            log.info("refused", extra={**about, "why": verdict.refusal.get("message", "")})
        return web.Response(body=msgspec.json.encode(response(review, verdict)), content_type="application/json")

    return answer


def tls_context(pair: Pair) -> ssl.SSLContext:
    """A server's TLS context with the certificate of `pair`. Raises ssl.SSLError for an invalid pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    use_pair(context, pair)
    return context


def use_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Use the certificate of `pair` for new connections. Raises ssl.SSLError."""
    # Loading a certificate and a key that do not match, as files during a replacement may be, would remove the
    # context's present pair. So the pair is first loaded into another context.
    for one in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        _load(one, pair)


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    # The ssl module reads keys only from files. This file is in memory, because the operator's root file system is
    # read-only.
    with os.fdopen(os.memfd_create("headrace-webhook"), "w", encoding="ascii") as file:
        file.write(pair.key + pair.certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


@asynccontextmanager
async def serving(app: web.Application, context: ssl.SSLContext, host: str, port: int) -> AsyncIterator[int]:
    """Serve `app` while the block runs; yields the port, which the system chooses for 0.

    Raises OSError.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port, ssl_context=context)
        await site.start()
        addresses: list[Any] = runner.addresses
        yield addresses[0][1]
    finally:
        await runner.cleanup()
