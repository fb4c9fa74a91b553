"""Readers of output that are slow or vanish, and a broker that goes away; the service is a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from tests.service.conftest import PASSWORD, ServiceProcess, serving

from headrace.service import streams
from headrace.service.middleware import Cut
from headrace.service.service import Here, by_header, of
from waiting import until


class Service(ServiceProcess):
    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/v1/{path}") as answer:
            return json.load(answer)

    def submit(self, command: str) -> int:
        call = urllib.request.Request(f"{self.url}/v1/jobs/submit?command={quote(command)}", method="POST")
        with urllib.request.urlopen(call) as answer:
            return int(json.load(answer)["id"])

    def stream(self, id: int) -> http.client.HTTPResponse:
        """The output of a job, of which no more is read than a caller asks for."""
        return self.open(f"/v1/jobs/{id}/output/stream")

    def memory(self) -> int:
        """Bytes that are this process's alone."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")) * 1024

    def sockets(self) -> int:
        found = 0
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                found += os.readlink(one).startswith("socket:")
            except FileNotFoundError:
                continue
        return found


@pytest.fixture
def service(instance: Any) -> Iterator[Service]:
    with serving(instance.uri) as process:
        yield Service(*process)


def test_slow_readers_cost_little_hold_up_nobody_and_get_all(service: Service) -> None:
    size = 60_000_000
    id = service.submit(f"sh -c 'yes 0123456 | head -c {size}'")
    before = service.memory()
    readers = [service.stream(id) for _ in range(3)]
    assert all(reader.read(8) == b"0123456\n" for reader in readers)
    until(lambda: service.get(f"jobs/{id}")["state"] == "INACTIVE")
    assert len(service.get("nodes")["nodes"]) == 1
    assert service.memory() - before < 25_000_000
    for reader in readers:
        got = 8
        while piece := reader.read(1 << 20):
            assert not piece.strip(b"0123456\n")
            got += len(piece)
        assert got == size


def test_a_reader_that_vanishes_leaves_nothing_at_the_broker(service: Service) -> None:
    id = service.submit("sh -c 'echo one; sleep 1000'")
    service.get("nodes")
    before = service.sockets()
    readers = [service.stream(id) for _ in range(20)]
    assert all(reader.read(4) == b"one\n" for reader in readers)
    # Each has a connection to the service, and the service has one for it to the broker.
    assert service.sockets() >= 40
    for reader in readers:
        reader.close()
    until(lambda: service.sockets() <= before)


def test_a_stream_whose_broker_is_lost_is_cut_off(instance: Any, service: Service) -> None:
    id = service.submit("sh -c 'echo one; sleep 1000'")
    reader = service.stream(id)
    assert reader.read(4) == b"one\n"
    instance.stopped = True
    os.kill(int(instance.flux("getattr", "broker.pid")), signal.SIGKILL)
    with pytest.raises(http.client.IncompleteRead):
        while reader.read(1):
            pass
    with pytest.raises(urllib.error.HTTPError, match="503"):
        service.get("jobs")


@pytest.mark.parametrize("path", ["v1/jobs/{}/output/stream", "v2/jobs/{}/output", "jobs/{}/output.txt"])
def test_each_road_to_output_counts_as_a_stream(service: Service, path: str) -> None:
    id = service.submit("sh -c 'yes | head -c 60000000; sleep 1000'")
    events = f"jobs/{id}/output/events"
    readers = [service.open(f"/{events}") for _ in range(streams.MOST_OF_USER)]
    assert {reader.status for reader in readers} == {200}
    for one in (path.format(id), events):
        with pytest.raises(urllib.error.HTTPError, match="429"):
            urllib.request.urlopen(f"{service.url}/{one}")
    for reader in readers:
        reader.close()


def test_a_stream_is_cut_when_its_user_is_not_let_in_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHECK_INTERVAL", 0.001)
    answers, sent, closed = [True, True, False], [], []

    async def has_access() -> bool:
        return answers.pop(0)

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    slots = streams.Slots()
    stream = streams.Stream(slots, 7, has_access, pieces(), "text/plain")
    with pytest.raises(Cut):
        asyncio.run(stream({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send))
    assert [message.get("body") for message in sent] == [None, b"first"], "nothing says that it was whole"
    assert not answers and closed and not slots._open


def test_who_is_removed_or_has_another_role_is_not_let_in_any_more(group: Any) -> None:
    boss = group.client("boss.x")
    assert boss.post("/v2/users", json={"name": "follower", "password": PASSWORD}).status_code == 201
    header = group.client("follower").headers["Authorization"].encode()

    def here() -> Here:
        request = Request({"type": "http", "method": "GET", "headers": [(b"authorization", header)], "app": group.app})
        asyncio.run(by_header(request))
        return of(request)

    user = here()
    assert asyncio.run(user.has_access())
    assert boss.post("/v2/users/follower", json={"admin": True}).status_code == 200
    admin = here()
    assert not asyncio.run(user.has_access()) and asyncio.run(admin.has_access())
    assert boss.delete("/v2/users/follower").status_code == 204
    assert not asyncio.run(admin.has_access())
