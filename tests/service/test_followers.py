"""Readers of one log, over streams of a broker that the test plays."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.service import followers as module
from headrace.service.broker_link import BrokerUnreachable
from headrace.service.followers import Followers
from headrace.service.users.credential import Identity, user


class Broker:
    """The log `lines`, of which a stream brings each when the test lets it; `streams` were begun, `open` have not
    ended.
    """

    def __init__(self, lines: list[str], identity: Identity | None = None) -> None:
        self.lines = lines
        self.identity = identity or user("ann", 1)
        self.allowed = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self.streams = self.open = self.brought = 0

    def let(self, count: int) -> None:
        for _ in range(count):
            self.allowed.release()

    async def follow(self, topic: str, obj: Any) -> AsyncIterator[Any]:
        self.streams += 1
        self.open += 1
        try:
            for line in self.lines:
                await self.allowed.acquire()
                self.brought += 1
                yield {"event": line}
            if self.failure is not None:
                raise self.failure
        finally:
            self.open -= 1


async def all_of(followers: Followers, broker: Any, id: int = 1, skip: int = 0) -> list[str]:
    return [line async for line in followers.follow(broker, id, "eventlog", skip)]


async def turns(count: int = 100) -> None:
    """Let what can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_readers_of_one_log_share_a_stream_and_those_of_others_do_not() -> None:
    async def run() -> None:
        broker, followers = Broker(["a", "b", "c"]), Followers()
        readers = [asyncio.create_task(all_of(followers, broker, skip=skip)) for skip in (0, 0, 2)]
        await turns()
        broker.let(3)
        assert [await reader for reader in readers] == [["a", "b", "c"], ["a", "b", "c"], ["c"]]
        assert broker.streams == 1 and broker.open == 0
        other = Broker(["x"], user("bob", 2))
        other.let(1)
        broker.let(6)
        found = await asyncio.gather(
            all_of(followers, broker), all_of(followers, other), all_of(followers, broker, id=2)
        )
        assert found == [["a", "b", "c"], ["x"], ["a", "b", "c"]] and broker.streams == 3 and other.streams == 1

    asyncio.run(run())


def test_a_stream_ends_with_its_last_reader() -> None:
    async def run() -> None:
        broker, followers = Broker(["a", "b"]), Followers()
        readers = [asyncio.create_task(all_of(followers, broker)) for _ in range(2)]
        await turns()
        readers[0].cancel()
        await turns()
        assert broker.open == 1
        readers[1].cancel()
        await turns()
        assert broker.open == 0

    asyncio.run(run())


def test_the_stream_waits_for_its_fastest_reader_and_a_slow_one_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD_LIMIT", 10)

    async def run() -> None:
        lines = [f"{number:05}" for number in range(50)]
        broker, followers = Broker(lines), Followers()
        broker.let(1000)
        slow = followers.follow(broker, 1, "eventlog")  # type: ignore[arg-type]
        assert await slow.__anext__() == lines[0]
        await turns()
        # One reader, which has taken one line: the stream is read 10 bytes ahead and no further.
        assert broker.brought <= 5
        assert await all_of(followers, broker) == lines
        assert broker.streams == 1
        assert [lines[0], *[line async for line in slow]] == lines and broker.streams == 2

    asyncio.run(run())


@pytest.mark.parametrize("failure", [BrokerUnreachable("gone"), OSError(errno.EPERM, "no")])
def test_what_ends_a_stream_is_told_each_reader_and_the_next_begins_anew(failure: OSError) -> None:
    async def run() -> None:
        broker, followers = Broker(["a"]), Followers()
        broker.failure = failure
        readers = [asyncio.create_task(all_of(followers, broker)) for _ in range(2)]
        await turns()
        broker.let(1)
        for reader in readers:
            with pytest.raises(type(failure), match=str(failure.strerror)):
                await reader
        broker.failure = None
        broker.let(1)
        assert await all_of(followers, broker) == ["a"] and broker.open == 0

    asyncio.run(run())
