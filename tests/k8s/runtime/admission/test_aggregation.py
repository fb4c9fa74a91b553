"""Who may ask the APIs of the aggregation layer: connections with real certificates, over the life of the authority."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from client_certificates import Authority, presenting

from headrace.k8s.runtime.admission.aggregation import Aggregator, Clients, aggregator_of, unreadable
from headrace.k8s.runtime.admission.certificates import Pair, make_pair
from headrace.k8s.runtime.admission.server import serving
from headrace.minicluster.operator.metrics import routes

HOST = "webhook.n.svc"
PATH = "/apis/custom.metrics.k8s.io/v1beta2"
ALLOWED = "front-proxy-client"
Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair([HOST], datetime.now(timezone.utc))


@pytest.fixture(scope="module")
def front_proxy() -> Authority:
    return Authority("front-proxy-ca")


def config_map(authority: str, names: str | None = json.dumps([ALLOWED])) -> dict[str, Any]:
    data = {"client-ca-file": "x", "requestheader-client-ca-file": authority}
    return {"data": {**data, **({} if names is None else {"requestheader-allowed-names": names})}}


class Asked:
    """A server of metrics, and what it answers to clients."""

    def __init__(self, pair: Pair) -> None:
        self.told: list[str] = []
        self.clients = Clients(pair, self.told.append)
        self.authority = pair.authority
        self.url = ""

    async def status(self, files: Files | None, path: str = PATH, headers: dict[str, str] | None = None) -> Any:
        """The HTTP status of a new connection, "no connection" without one; the body of a refusal is a Status."""
        async with aiohttp.ClientSession() as session:
            return await self.through(session, presenting(self.authority, files), path, headers)

    async def through(
        self, session: aiohttp.ClientSession, tls: ssl.SSLContext, path: str = PATH, headers: Any = None
    ) -> Any:
        try:
            async with session.get(self.url + path, ssl=tls, server_hostname=HOST, headers=headers) as found:
                body = await found.json()
                if found.status != 200:
                    assert (body["kind"], body["reason"], body["code"]) == ("Status", "Unauthorized", found.status)
                    assert body["message"].startswith(
                        ("only the API server's aggregation layer", "a client certificate")
                    )
                return found.status
        except aiohttp.ClientConnectionError:
            return "no connection"


@asynccontextmanager
async def asked(pair: Pair, *found: Aggregator) -> AsyncIterator[Asked]:
    its = Asked(pair)
    for one in found:
        its.clients.use_aggregator(one)
    app = web.Application()
    app.add_routes(routes(lambda: [], its.clients.refusal))
    async with serving(app, its.clients.context, "127.0.0.1", 0) as port:
        its.url = f"https://127.0.0.1:{port}"
        yield its


def test_only_the_aggregation_layer_is_answered(pair: Pair, front_proxy: Authority, tmp_path: Path) -> None:
    other = Authority("front-proxy-ca")

    async def run() -> None:
        async with asked(pair, aggregator_of(config_map(front_proxy.pem))) as its:
            ours = front_proxy.client(tmp_path, ALLOWED)
            for path in (PATH, "/apis", "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/demand_nodes"):
                assert await its.status(ours, path) == 200
                assert await its.status(None, path) == 401
                assert (
                    await its.status(None, path, {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}) == 401
                )
            assert await its.status(front_proxy.client(tmp_path, "kubelet")) == 401
            assert await its.status(front_proxy.client(tmp_path, "")) == 401
            # What the authority has not signed for this is refused by TLS itself.
            for wrong in (
                other.client(tmp_path, ALLOWED),
                front_proxy.client(tmp_path, ALLOWED, lasts=timedelta(hours=-1)),
                front_proxy.client(tmp_path, ALLOWED, serves=True),
            ):
                assert await its.status(wrong) == "no connection"
        assert its.told == [""]

    asyncio.run(run())


@pytest.mark.parametrize("names", [None, "", "[]", json.dumps(["other", ALLOWED])])
def test_without_a_list_of_names_each_name_is_allowed(
    pair: Pair, front_proxy: Authority, tmp_path: Path, names: str | None
) -> None:
    async def run() -> None:
        async with asked(pair, aggregator_of(config_map(front_proxy.pem, names))) as its:
            assert await its.status(front_proxy.client(tmp_path, ALLOWED)) == 200
            assert await its.status(front_proxy.client(tmp_path, "any")) == (401 if names and ALLOWED in names else 200)
            assert await its.status(None) == 401

    asyncio.run(run())


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "there is no ConfigMap kube-system/extension-apiserver-authentication"),
        ({}, "has no requestheader-client-ca-file: the API server runs without that option"),
        (config_map(""), "has no requestheader-client-ca-file"),
        (config_map("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "has a malformed certificate"),
        (config_map("-----BEGIN CERTIFICATE-----\né\n-----END CERTIFICATE-----\n"), "has a malformed certificate"),
    ],
)
def test_nobody_is_answered_where_the_aggregation_layer_is_unknown(
    pair: Pair, front_proxy: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, found: Any, why: str
) -> None:
    async def run() -> None:
        async with asked(pair) as its:
            assert await its.status(None) == 401 and its.told == []
            its.clients.use_aggregator(aggregator_of(found))
            assert [await its.status(one) for one in (None, front_proxy.client(tmp_path, ALLOWED))] == [401, 401]
            # The reason is told once.
            its.clients.use_aggregator(aggregator_of(found))
        assert len(its.told) == 1 and why in its.told[0]
        assert [why in one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [True]

    asyncio.run(run())


@pytest.mark.parametrize("names", ["front-proxy-client", '{"a": 1}', "[1]", "null"])
def test_a_malformed_list_of_names_allows_nobody(front_proxy: Authority, names: str) -> None:
    found = aggregator_of(config_map(front_proxy.pem, names))
    assert (
        found.authority == ""
        and f"has no list of names in requestheader-allowed-names, which is {names!r}" in found.why_unknown
    )
    assert unreadable("may not list configmaps").why_unknown.endswith("cannot be read: may not list configmaps")


def test_the_authority_changes_without_a_restart(pair: Pair, front_proxy: Authority, tmp_path: Path) -> None:
    fresh = Authority("front-proxy-ca")
    before, after = front_proxy.client(tmp_path, ALLOWED), fresh.client(tmp_path, ALLOWED)

    async def run() -> None:
        found = aggregator_of(config_map(front_proxy.pem))
        async with asked(pair, found) as its, aiohttp.ClientSession() as kept:
            tls = presenting(pair.authority, before)
            assert [await its.status(one) for one in (before, after)] == [200, "no connection"]
            assert await its.through(kept, tls) == 200
            # Both are trusted while the API servers of a cluster change over one by one.
            its.clients.use_aggregator(aggregator_of(config_map(front_proxy.pem + fresh.pem)))
            assert [await its.status(one) for one in (before, after)] == [200, 200]
            # A connection of before is closed with its first refusal, and the next one is accepted.
            assert [await its.through(kept, tls) for _ in range(3)] == [401, 200, 200]
            its.clients.use_aggregator(aggregator_of(config_map(fresh.pem)))
            assert await its.through(kept, tls) == 401
            assert [await its.status(one) for one in (before, after)] == ["no connection", 200]
            # A new certificate of the server keeps what is known of its clients.
            renewed = make_pair([HOST], datetime.now(timezone.utc))
            its.clients.use_pair(renewed)
            its.authority = renewed.authority
            assert [await its.status(one) for one in (None, after)] == [401, 200]
            its.clients.use_aggregator(aggregator_of(config_map(fresh.pem, '["other"]')))
            assert await its.status(after) == 401
            its.clients.use_aggregator(aggregator_of(None))
            assert await its.status(after) == 401
            its.clients.use_aggregator(aggregator_of(config_map(fresh.pem)))
            assert await its.status(after) == 200
        assert its.told == ["", "there is no ConfigMap kube-system/extension-apiserver-authentication", ""]

    asyncio.run(run())


def test_an_intermediate_authority_is_trusted_without_its_root(pair: Pair, tmp_path: Path) -> None:
    between = Authority("between", signer=Authority("root"))

    async def run() -> None:
        async with asked(pair, aggregator_of(config_map(between.pem))) as its:
            assert await its.status(between.client(tmp_path, ALLOWED)) == 200

    asyncio.run(run())
