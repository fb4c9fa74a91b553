"""A follower with a script of its own begins when its parent's has run, and ends when it never will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker import state
from headrace.broker.join import when_parent_is_through
from headrace.spec.message import error_response, response


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
    return response(asked, {"state": state.STATES.index(name)})
