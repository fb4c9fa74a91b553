"""The HTTPS server of the webhook, called as the API server calls it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

import aiohttp
import pytest

from headrace.k8s.runtime.admission.certificates import Pair, make_pair
from headrace.k8s.runtime.admission.server import application, serving, tls_context
from headrace.minicluster.operator import admission
from headrace.minicluster.operator.names import WEBHOOK_PATH
from minicluster.api.specs import document

HOST = "headrace-webhook.headrace-system.svc"
Post = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair([HOST], datetime.now(timezone.utc))


def ask(pair: Pair, *bodies: Any) -> list[tuple[int, Any]]:
    """Status and answer (JSON, or text) to each body, from a server whose only MiniCluster is n/c with maxSize 4."""

    async def lookup(namespace: str, name: str) -> dict[str, Any] | None:
        return document({"size": 2, "maxSize": 4}) if (namespace, name) == ("n", "c") else None

    async def run() -> list[tuple[int, Any]]:
        found = []
        async with serving(
            application({WEBHOOK_PATH: admission.handler(lookup)}), tls_context(pair), "127.0.0.1", 0
        ) as port:
            trust = ssl.create_default_context(cadata=pair.authority)
            async with aiohttp.ClientSession() as session:
                for body in bodies:
                    given: Any = {"data": body} if isinstance(body, bytes) else {"json": body}
                    url = f"https://127.0.0.1:{port}{WEBHOOK_PATH}"
                    async with session.post(url, ssl=trust, server_hostname=HOST, **given) as got:
                        json = got.content_type == "application/json"
                        found.append((got.status, await (got.json() if json else got.text())))
        return found

    return asyncio.run(run())


def review(new: Any, **request: Any) -> dict[str, Any]:
    resource = {"group": "flux-framework.org", "version": "v1alpha2", "resource": "miniclusters"}
    full = {"uid": "u", "resource": resource, "namespace": "n", "name": "c", "object": new, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full}


def scale(replicas: int, **request: Any) -> dict[str, Any]:
    return review({"kind": "Scale", "spec": {"replicas": replicas}}, subResource="scale", **request)


def test_clusters_and_scales_are_judged(pair: Pair) -> None:
    bodies = (review(document({})), review(document({"size": 0})), scale(4), scale(5))
    answers = [(status, answer["response"]["allowed"]) for status, answer in ask(pair, *bodies)]
    assert answers == [(200, True), (200, False), (200, True), (200, False)]


def test_a_large_cluster_is_judged_too(pair: Pair) -> None:
    large = document({"pod": {"annotations": {f"a{index}": "x" * 1000 for index in range(240)}}})
    ((status, answer),) = ask(pair, review(large))
    assert (status, answer["response"]["allowed"]) == (200, True)


def test_what_cannot_be_judged_is_an_error(pair: Pair) -> None:
    deep = b"[" * 100_000
    bodies = (b"", b"{", b"\xff", deep, {}, scale(1, name="other"), b"x" * (5 * 2**20))
    statuses = [status for status, _ in ask(pair, *bodies)]
    assert statuses == [400, 400, 400, 400, 400, 404, 413]
