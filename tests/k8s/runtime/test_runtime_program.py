"""The operator as a program: HTTP pages, and its end."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from running_operator import free_port

from headrace.k8s.runtime import program
from headrace.k8s.runtime.api import Api
from headrace.k8s.runtime.credentials import Cluster, Identity
from headrace.k8s.runtime.program import _comes_first, _http


def test_pages_answer_with_their_status() -> None:
    async def run() -> tuple[tuple[int, str], int]:
        port = free_port()
        pages = {"/readyz": lambda: (503, "not yet\n", "text/plain")}
        runner = await _http(f"127.0.0.1:{port}", pages)
        assert runner is not None and await _http("", pages) is None
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                ready, other = await session.get("/readyz"), await session.get("/other")
                return (ready.status, await ready.text()), other.status
        finally:
            await runner.cleanup()

    assert asyncio.run(run()) == ((503, "not yet\n"), 404)


def test_nothing_goes_on_when_a_part_has_failed() -> None:
    async def forever(ended: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def fails() -> None:
        raise OSError("port taken")

    async def run() -> list[str]:
        ended: list[str] = []
        with pytest.raises(OSError, match="port taken"):
            await _comes_first(forever(ended), [asyncio.create_task(fails())])
        stopping = asyncio.create_task(asyncio.sleep(0))
        assert not await _comes_first(forever(ended), [stopping])
        assert await _comes_first(asyncio.sleep(0), [asyncio.create_task(forever(ended))])
        return ended

    assert asyncio.run(run())[:2] == ["ended", "ended"]


@pytest.mark.parametrize(
    ("is_of_pod", "own", "given", "found"),
    [
        (False, "own", "", "own"),
        (False, "", "", "team"),
        (False, "own", "ops", "ops"),
        (True, "own", "", "team"),
    ],
)
def test_a_program_outside_of_pods_has_its_lease_in_one_namespace_whatever_the_context_says(
    monkeypatch: pytest.MonkeyPatch, is_of_pod: bool, own: str, given: str, found: str
) -> None:
    cluster = Cluster(server="http://127.0.0.1:9", identity=Identity(), namespace="team", is_of_pod=is_of_pod)
    places: list[str] = []

    class NoElection:
        def __init__(self, api: Api, namespace: str, *rest: object) -> None:
            places.append(namespace)

        async def wait(self) -> None:
            raise OSError("enough")

        async def release(self) -> None:
            pass

    monkeypatch.setattr(program.credentials, "find", lambda *_: cluster)
    monkeypatch.setattr(program.lease, "Election", NoElection)
    serving = program.Serving(lease_namespace=given, metrics_bind="", health_bind="")
    names = {"component": "queue", "lease": "queue", "webhook": "queue", "namespace": own}
    with pytest.raises(OSError, match="enough"):
        asyncio.run(program.serve(serving, program.Program(**names, configurations=(), build=lambda shared: {})))
    assert places == [found]
