"""A reflector lists once and then watches: through breaks from where it was, and anew only where that is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest
from http_api import HttpApi, run

from headrace.cluster_queue.controller import trimmed_workload
from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime import watches as reflector_module
from headrace.k8s.runtime.api import Api
from headrace.k8s.runtime.cache import Cache
from headrace.k8s.runtime.watches import Reflector
from waiting import until_in_loop

Object = dict[str, Any]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(reflector_module, "LARGEST_PAUSE", 0.01)


def pod(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}}


def listing(version: int, *items: Object) -> tuple[int, Object]:
    return 200, {"items": list(items), "metadata": {"resourceVersion": str(version)}}


def reflecting(test: Any) -> None:
    async def inside(http: HttpApi, api: Api) -> None:
        cache, changed = Cache(), []
        http.answers.append(listing(5, pod("a", 3), pod("b", 4)))
        reflector = Reflector(api, PODS, cache, lambda item: changed.append(item["metadata"]["name"]), labels="x=y")
        task = asyncio.create_task(reflector.run())
        try:
            await test(http, cache, changed)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert all(request[2]["labelSelector"] == "x=y" for request in http.requests)

    run(inside)


def watches(http: HttpApi) -> list[str]:
    return [query["resourceVersion"] for _, _, query, _ in http.requests if "watch" in query]


def listings(http: HttpApi) -> int:
    return sum(1 for request in http.requests if "watch" not in request[2])


def test_it_lists_once_and_follows() -> None:
    async def test(http: HttpApi, cache: Cache, changed: list[str]) -> None:
        events = await http.watched.get()
        assert changed == ["a", "b"] and len(cache) == 2
        events.put_nowait({"type": "MODIFIED", "object": pod("a", 6)})
        events.put_nowait({"type": "DELETED", "object": pod("b", 7)})
        await until_in_loop(lambda: changed == ["a", "b", "a", "b"])
        assert [one["metadata"]["resourceVersion"] for one in cache] == ["6"]

    reflecting(test)


def test_after_a_break_it_goes_on_from_the_last_version_also_a_bookmarks() -> None:
    async def test(http: HttpApi, cache: Cache, changed: list[str]) -> None:
        events = await http.watched.get()
        events.put_nowait({"type": "MODIFIED", "object": pod("a", 6)})
        await until_in_loop(lambda: "a" in changed[2:])
        events.put_nowait(ConnectionError())
        events = await http.watched.get()
        events.put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}})
        events.put_nowait(None)
        await http.watched.get()
        assert watches(http) == ["5", "6", "99"]
        assert listings(http) == 1
        assert changed == ["a", "b", "a"], "a bookmark changes nothing"

    reflecting(test)


@pytest.mark.parametrize("in_stream", [False, True])
def test_a_version_that_is_forgotten_is_followed_by_a_listing(in_stream: bool) -> None:
    async def test(http: HttpApi, cache: Cache, changed: list[str]) -> None:
        events = await http.watched.get()
        gone = {"code": 410, "reason": "Expired", "message": "too old"}
        if in_stream:
            http.answers.append(listing(20, pod("a", 3), pod("c", 19)))
            events.put_nowait({"type": "ERROR", "object": gone})
        else:
            http.answers += [(410, gone), listing(20, pod("a", 3), pod("c", 19))]
            events.put_nowait(None)
        await http.watched.get()
        assert sorted(one["metadata"]["name"] for one in cache) == ["a", "c"]
        assert changed[2:] == ["b", "a", "c"], "what went meanwhile is told, too"
        assert watches(http)[-1] == "20"

    reflecting(test)


def test_refusals_are_waited_out() -> None:
    async def test(http: HttpApi, cache: Cache, changed: list[str]) -> None:
        events = await http.watched.get()
        http.answers += [(403, {"message": "no"}), (500, {"message": "etcd"}), (429, {"message": "slow down"})]
        events.put_nowait(ConnectionError())
        await http.watched.get()
        assert watches(http) == ["5"] * 5
        assert listings(http) == 1

    reflecting(test)


def test_a_refusal_of_what_can_be_done_without_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "REFUSED_PAUSE", 0.001)
    monkeypatch.setattr(reflector_module, "ABSENT_PAUSE", 0.001)

    async def test(http: HttpApi, api: Api) -> None:
        cache, changed = Cache(), []
        forbidden = (403, {"message": "may not list pods"})
        http.answers += [forbidden, forbidden, (404, {"message": "no such namespace"})]
        reflector = Reflector(api, PODS, cache, changed.append, "away", without="it goes on")
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        assert not cache
        await until_in_loop(lambda: not http.answers)
        http.answers.append(listing(5, pod("a", 3)))
        await until_in_loop(lambda: len(cache) == 1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert {path for _, path, _, _ in http.requests} == {"/api/v1/namespaces/away/pods"}

    run(test)
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert told == ["no watch of pods in away, it goes on: may not list pods"]


def test_a_kind_that_is_not_defined_is_no_warning_and_is_there_when_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "ABSENT_PAUSE", 0.001)

    async def test(http: HttpApi, api: Api) -> None:
        cache, changed = Cache(), []
        http.answers += [(404, {"message": "the server could not find the requested resource"})] * 2
        reflector = Reflector(api, PODS, cache, changed.append, "", without="the cluster does not have this kind")
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await until_in_loop(lambda: not http.answers)
        http.answers.append(listing(5, pod("a", 3)))
        await until_in_loop(lambda: len(cache) == 1 and len(changed) == 1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run(test)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def nested_pod(name: str, version: int, levels: int) -> bytes:
    part = b'{"spec":' * levels + b"1" + b"}" * levels
    return json.dumps(pod(name, version)).encode()[:-1] + b', "spec":' + part + b"}"


def test_an_object_that_is_nested_too_deeply_costs_itself_alone() -> None:
    async def test(http: HttpApi, api: Api) -> None:
        cache = Cache(trimmed_workload)
        head = b'{"metadata": {"resourceVersion": "5"}, "items": ['
        http.answers.append((200, head + nested_pod("a", 3, 5000) + b"]}"))
        task = asyncio.create_task(Reflector(api, PODS, cache, lambda item: None).run())
        await until_in_loop(lambda: task.done() or not http.watched.empty())
        events = http.watched.get_nowait()
        assert [one["metadata"]["name"] for one in cache] == ["a"]
        # Some are decoded, and too deep to be trimmed.
        for version, levels in enumerate((200, 400, 600, 800, 960, 5000), 6):
            deep = nested_pod(f"n{levels}", version, levels)
            events.put_nowait(b'{"type": "ADDED", "object": ' + deep + b"}\n")
        events.put_nowait({"type": "ADDED", "object": pod("last", 99)})
        await until_in_loop(lambda: task.done() or cache.get("ns", "last") is not None)
        assert not task.done() and len(cache) == 8
        assert watches(http) == ["5"]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run(test)
