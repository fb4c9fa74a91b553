"""The relay between the operator's socket and a lead: bytes pass unchanged, and no more than a lead may send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from headrace.minicluster.operator import channel_relay
from headrace.minicluster.operator.channel_relay import Budget, Relay

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def test_a_budget_has_its_burst_at_once_and_its_rate_in_the_long_run() -> None:
    budget = Budget(rate=10, burst=100)
    assert [budget.spend(50, 1000.0) for _ in range(3)] == [True, True, False]
    budget = Budget(rate=10, burst=100)
    assert budget.spend(100, 1000.0)
    assert all(budget.spend(10, 1000.0 + second) for second in range(1, 50))
    assert not budget.spend(11, 1050.0)
    assert budget.spend(90, 2000.0), "what was not used is kept up to the burst"


def relayed(serve: Serve, ask: Callable[[Relay], Awaitable[None]]) -> str:
    """What a relay to a lead that serves so returns, while `ask` uses it; "" if that ends first."""

    async def run() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        relay = Relay("127.0.0.1", server.sockets[0].getsockname()[1])
        task, asking = asyncio.ensure_future(relay.run()), asyncio.ensure_future(ask(relay))
        await asyncio.wait([task, asking], return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        if not task.done():
            await asking
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return ""
        server.close()
        return task.result()

    return asyncio.run(run())


async def connect(relay: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(path=f"\0{relay.address.removeprefix('ipc://@')}")


def test_bytes_pass_both_ways_and_an_end_ends_the_other_side() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(100_000))
        await writer.drain()
        writer.close()

    async def ask(relay: Relay) -> None:
        reader, writer = await connect(relay)
        sent = bytes(range(250)) * 400
        writer.write(sent)
        assert await reader.read(-1) == sent
        writer.close()

    assert relayed(echo, ask) == ""


def test_a_lead_that_sends_too_much_is_cut_before_it_has_passed() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"x" * 65_536)
            await writer.drain()

    got = 0

    async def ask(relay: Relay) -> None:
        nonlocal got
        reader, _writer = await connect(relay)
        while data := await reader.read(65_536):
            got += len(data)
        await asyncio.Event().wait()

    assert relayed(flood, ask) == "sent more than 32 KiB a second"
    assert got <= 300_000


@pytest.mark.parametrize(
    ("again", "told"), [(True, "closed and opened connections too often"), (False, "violated the protocol")]
)
def test_a_lead_whose_connections_end_is_given_up(again: bool, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_relay, "_RECONNECTS", 0.5)
    made = 0

    async def vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        writer.close()

    async def ask(relay: Relay) -> None:
        while again or not made:
            reader, writer = await connect(relay)
            await reader.read(-1)
            writer.close()
        await asyncio.Event().wait()

    assert relayed(vanish, ask).startswith(told)
    assert made == (6 if again else 1)


def test_a_lead_that_is_not_there_yet_is_tried_again() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        relay = Relay("127.0.0.1", port)
        task = asyncio.ensure_future(relay.run())
        for _ in range(3):
            reader, writer = await connect(relay)
            assert await reader.read(-1) == b""
            writer.close()
        greeted = asyncio.Event()
        server = await asyncio.start_server(lambda reader, writer: greeted.set(), "127.0.0.1", port)
        _reader, writer = await connect(relay)
        await greeted.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        writer.close()
        server.close()

    asyncio.run(run())
