"""Arguments that a module does not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import RpcError

Run = Callable[..., None]


def test_unknown_arguments_are_refused_by_name_and_idle_ones_logged(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        logged: list[str] = []
        broker.log = lambda _level, _source, text: logged.append(text)
        ctx = broker.context("mine")
        only(ctx, ["a=1", "b", "idle=2"], ["a", "b"], ["idle"])
        assert logged == ["idle=2: has no effect"]
        with pytest.raises(RpcError, match="mine: unknown argument 'c=3', known are a, b"):
            only(ctx, ["c=3"], ["a", "b"])
        with pytest.raises(RpcError, match="mine: unknown argument 'x', it takes none"):
            only(ctx, ["x"])

    in_broker(scenario)
