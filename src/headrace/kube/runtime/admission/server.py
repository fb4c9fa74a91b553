"""The admission webhook: an HTTPS server that passes reviews to `admission` and returns its responses.

It is an aiohttp.web application, because the operator uses that library for its client already. The certificate can be
replaced while the server runs: new connections get the new one (`SSLContext.load_cert_chain`). A review that fails is
an HTTP error, which the API server treats as a refusal of the request (failurePolicy Fail).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from ... import admission
from ...operator_names import WEBHOOK_PATH
from .certificates import Pair

# Bytes of a review: it has the object twice, each at most the size of a request to etcd (1.5 MiB), and some more.
_LARGEST = 4 * 2**20
# Bytes above which a review is handled in a thread, so that the operator's loop continues.
_LARGE = 64 * 2**10

# Returns the stored MiniCluster with a namespace and name; None if there is none.
Lookup = Callable[[str, str], Awaitable["admission.Object | None"]]

log = logging.getLogger(__name__)


def application(lookup: Lookup) -> web.Application:
    """The webhook as a web application; `lookup` returns the MiniCluster of a Scale."""
    app = web.Application(client_max_size=_LARGEST)

    async def validate(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            review = admission.parse(msgspec.json.decode(body))
        except (admission.BadReview, msgspec.DecodeError, RecursionError) as exc:
            return web.Response(status=400, text=f"{exc}\n")
        if review.scale:
            stored = await lookup(review.namespace, review.name)
            if stored is None:
                return web.Response(status=404, text=f"no MiniCluster {review.namespace}/{review.name}\n")
            review = admission.scaled(review, stored)
        judged = asyncio.to_thread(admission.answer, review) if len(body) > _LARGE else None
        found = await judged if judged else admission.answer(review)
        if not found["response"]["allowed"]:
            message = found["response"]["status"]["message"]
            log.info("refused", extra={"namespace": review.namespace, "minicluster": review.name, "why": message})
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    app.router.add_post(WEBHOOK_PATH, validate)
    return app


def tls_context(pair: Pair) -> ssl.SSLContext:
    """A server's TLS context with the certificate of `pair`. Raises ssl.SSLError for an invalid pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    use_pair(context, pair)
    return context


def use_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Use the certificate of `pair` for new connections. Raises ssl.SSLError."""
    # A certificate and a key that do not match, as in files during a replacement, would remove the context's own pair,
    # so they are loaded into another context first.
    for one in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        _load(one, pair)


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    # The ssl module reads keys only from files; this file is in memory, since the operator's root file system is
    # read-only.
    with os.fdopen(os.memfd_create("headrace-webhook"), "w", encoding="ascii") as file:
        file.write(pair.key + pair.certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


@asynccontextmanager
async def serving(app: web.Application, context: ssl.SSLContext, host: str, port: int) -> AsyncIterator[int]:
    """Serve `app` while the block runs; yields the port, which the system chooses for 0. Raises OSError."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port, ssl_context=context)
        await site.start()
        addresses: list[Any] = runner.addresses
        yield addresses[0][1]
    finally:
        await runner.cleanup()
