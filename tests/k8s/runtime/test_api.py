"""The API client: requests as the API server wants them, refusals with its own words, watches that break."""

from __future__ import annotations

import asyncio
import ssl
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from http_api import HttpApi, run, served

from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS, MINICLUSTERS, PODS, SECRETS
from headrace.k8s.runtime.admission.certificates import make_pair
from headrace.k8s.runtime.api import Api, ApiError, Unreachable
from headrace.k8s.runtime.credentials import Cluster, Identity

Object = dict[str, Any]


def test_requests_are_those_of_the_api() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        await api.create(JOBS, "ns", {"metadata": {"name": "a"}})
        await api.apply(CONFIG_MAPS, "ns", "a", {"metadata": {"uid": "u"}})
        await api.merge(MINICLUSTERS, "ns", "a", {"status": {}}, "status")
        await api.delete(PODS, "ns", "a", uid="u", propagation="Foreground")
        await api.get(SECRETS, "ns", "a/../b")
        await api.patch(PODS, "ns", "a", ({"op": "remove", "path": "/spec"},))
        requests = [(method, path, query) for method, path, query, _ in http.requests]
        manager = {"fieldManager": "headrace-operator"}
        assert requests[:4] == [
            ("POST", "/apis/batch/v1/namespaces/ns/jobs", manager),
            ("PATCH", "/api/v1/namespaces/ns/configmaps/a", {**manager, "force": "true"}),
            ("PATCH", "/apis/flux-framework.org/v1alpha2/namespaces/ns/miniclusters/a/status", manager),
            ("DELETE", "/api/v1/namespaces/ns/pods/a", {}),
        ]
        applied = http.requests[1][3]
        assert applied == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "u"}}
        assert http.requests[3][3] == {"propagationPolicy": "Foreground", "preconditions": {"uid": "u"}}
        assert requests[5] == ("PATCH", "/api/v1/namespaces/ns/pods/a", manager)
        assert http.requests[5][3] == [{"op": "remove", "path": "/spec"}]
        assert requests[4][1].startswith("/api/v1/namespaces/ns/secrets/a"), "a name does not leave its place"
        assert set(http.tokens) == {"Bearer secret"}

    run(test)


def test_a_listing_comes_in_chunks() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        http.answers = [
            (200, {"items": [{"a": 1}], "metadata": {"continue": "more", "resourceVersion": "7"}}),
            (200, {"items": [{"a": 2}], "metadata": {"resourceVersion": "7"}}),
        ]
        listing = await api.list_objects(PODS, labels="a=b", trim=lambda item: {"b": item["a"]})
        assert (listing.items, listing.version) == ([{"b": 1}, {"b": 2}], "7")
        assert http.requests[1][2]["continue"] == "more"
        assert http.requests[0][2]["labelSelector"] == "a=b"

    run(test)


def test_a_refusal_has_the_servers_reason_and_message() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        http.answers = [(409, {"reason": "AlreadyExists", "message": 'jobs "a" already exists'}), (502, "gone")]
        with pytest.raises(ApiError) as caught:
            await api.create(JOBS, "ns", {"metadata": {"name": "a"}})
        assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
        assert str(caught.value) == 'jobs "a" already exists'
        with pytest.raises(ApiError) as caught:
            await api.get(JOBS, "ns", "a")
        assert caught.value.status == 502

    run(test)


def test_a_server_that_is_not_there_is_unreachable() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        api.cluster = type(api.cluster)("http://127.0.0.1:1", Identity())
        with pytest.raises(Unreachable, match="get jobs"):
            await api.get(JOBS, "ns", "a")
        with pytest.raises(Unreachable, match="watch of jobs"):
            async for _ in api.watch(JOBS, "1"):
                pass

    run(test)


def test_a_failed_connection_is_told_without_the_objects_of_python(tmp_path: Path) -> None:
    pair = make_pair(["somewhere.else"], datetime.now(timezone.utc))
    (tmp_path / "pair.pem").write_text(pair.certificate + pair.key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(tmp_path / "pair.pem")

    async def test(http: HttpApi, api: Api) -> None:
        plain = int(api.cluster.server.rpartition(":")[2])
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
        served = server.sockets[0].getsockname()[1]
        expected = {
            "https://127.0.0.1:1": "Connection refused",
            f"https://127.0.0.1:{plain}": "TLS: ",
            f"https://127.0.0.1:{served}": "its certificate is refused: unable to get local issuer certificate",
        }
        for where, why in expected.items():
            api.cluster = type(api.cluster)(where, Identity(), ssl.create_default_context())
            with pytest.raises(Unreachable) as caught:
                await api.get(JOBS, "ns", "a")
            assert str(caught.value).startswith(f"the API server {where}: {why}")
            assert "object at" not in str(caught.value)
        server.close()

    run(test)


def test_watched_objects_may_be_large_and_come_in_pieces() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        large = {"metadata": {"resourceVersion": "2"}, "data": "x" * 300_000}
        seen = []

        async def watch() -> None:
            async for kind, item in api.watch(PODS, "1"):
                seen.append((kind, item))

        task = asyncio.create_task(watch())
        events = await http.watched.get()
        events.put_nowait({"type": "ADDED", "object": large})
        for part in (b'{"type": "DELE', b'TED", "object": {}}\n{"type": "BOOKMARK", "object": {"a": 1}}\n'):
            events.put_nowait(part)
        events.put_nowait(None)
        await task
        assert seen == [("ADDED", large), ("DELETED", {}), ("BOOKMARK", {"a": 1})]
        query = http.requests[0][2]
        assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("1", "true")

    run(test)


def test_an_error_in_a_watch_is_raised() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        async def watch() -> None:
            async for _ in api.watch(PODS, "1"):
                pass

        task = asyncio.create_task(watch())
        events = await http.watched.get()
        events.put_nowait({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
        with pytest.raises(ApiError) as caught:
            await task
        assert caught.value.status == 410

    run(test)


def test_a_token_file_is_read_again_when_the_server_does_not_know_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")

    async def test() -> None:
        async with served(Identity(file=file)) as (http, api):
            await api.get(JOBS, "ns", "a")
            file.write_text("second\n")
            http.answers = [(401, {"reason": "Unauthorized"})]
            with pytest.raises(ApiError):
                await api.get(JOBS, "ns", "a")
            await api.get(JOBS, "ns", "a")
            assert http.tokens == ["Bearer first", "Bearer first", "Bearer second"]

    asyncio.run(test())


def test_what_is_no_json_is_taken_for_a_server_out_of_order() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        async def watch() -> None:
            async for _ in api.watch(PODS, "1"):
                pass

        task = asyncio.create_task(watch())
        events = await http.watched.get()
        events.put_nowait(b"<html>\n")
        with pytest.raises(Unreachable):
            await task

    run(test)


def test_requests_are_counted() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        counted = []
        api.counted = lambda *what: counted.append(what)
        await api.get(JOBS, "ns", "a")
        await api.list_objects(PODS)
        assert counted == [("get", "jobs"), ("list", "pods")]

    run(test)


def test_a_request_without_an_answer_ends_at_its_limit() -> None:
    async def test() -> None:
        silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with Api(Cluster(f"http://127.0.0.1:{port}", Identity()), timeout=0.1) as api:
            with pytest.raises(Unreachable, match="no answer in time"):
                await asyncio.wait_for(api.get(JOBS, "ns", "a"), 10)

    asyncio.run(test())
