"""A follower with a script of its own begins when its parent's has run, and ends when it never will. One that has not
met its parent ends with who started it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.state import machine
from headrace.engine.broker.tbon import join
from headrace.engine.broker.tbon.join import expect_parent, when_parent_is_through
from headrace.formats.spec.message import error_response, response
from waiting import stays_in_loop, until_in_loop


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["join", "init"], []),
        (["init", "quorum"], ["parent-ready"]),
        (["run"], ["parent-ready"]),
        (["init", "cleanup"], ["parent-fail"]),
        (["shutdown"], ["parent-fail"]),
        (["init", None], ["parent-fail"]),
    ],
)
def test_what_the_parents_states_mean(
    in_broker: Callable[..., None], states: list[str | None], said: list[str]
) -> None:
    async def scenario(child: Any) -> None:
        child.context = child.context("broker")
        went: list[str] = []
        when_parent_is_through(child, went.append)
        await child.settle()
        (asked,) = child.up
        assert (asked.topic, asked.streaming) == ("state-machine.monitor", True)
        for name in states:
            child.router.response(answer(asked, name))
            await child.settle()
        assert went == said

    in_broker(scenario, rank=1, size=2)


def answer(asked: Any, name: str | None) -> Any:
    if name is None:
        return error_response(asked, 113, "gone")
    return response(asked, {"state": machine.STATES.index(name)})


@pytest.mark.parametrize(("starter", "met", "ends"), [(1, False, True), (1, True, False), (0, False, False)])
def test_who_has_not_met_its_parent_ends_with_who_started_it(
    monkeypatch: pytest.MonkeyPatch, starter: int, met: bool, ends: bool
) -> None:
    monkeypatch.setattr(join, "_POLL_INTERVAL", 0.001)

    async def scenario() -> None:
        went: list[str] = []
        boot = SimpleNamespace(parent_uri="ipc://x", method="test", starter=starter and os.getppid())
        attrs = {"tbon.connect_timeout": "0"}
        loop = asyncio.get_running_loop()
        broker: Any = SimpleNamespace(state="join", boot=boot, attrs=attrs, loop=loop, exit_code=0, advance=went.append)
        expect_parent(broker)
        await stays_in_loop(lambda: went == [], 0.02)
        # Another process has taken its place.
        broker.state = "init" if met else "join"
        monkeypatch.setattr(os, "getppid", lambda: -1)
        if ends:
            await until_in_loop(lambda: went)
            assert (went, broker.exit_code) == (["parent-fail"], 1)
        else:
            await stays_in_loop(lambda: (went, broker.exit_code) == ([], 0), 0.05)

    asyncio.run(scenario())
