"""The heartbeat: rank 0 publishes `heartbeat.pulse` once a period, and everyone who subscribes shares one clock.

The period is `[heartbeat] period` of the configuration or the module argument `period=FSD`, 2 s by default.
"""

from __future__ import annotations

import errno
from typing import Any

from ..broker.module import ModuleContext, RpcError
from ..spec import duration

NAME = "heartbeat"
DEFAULT_PERIOD = 2.0


def period_of(args: list[str], config: dict[str, Any]) -> float:
    """Seconds between pulses; an argument is stronger than the configuration. Raises RpcError(EINVAL)."""
    table = config.get("heartbeat", {})
    if not isinstance(table, dict):
        raise RpcError(errno.EINVAL, f"heartbeat: must be a table, not {table!r}")
    text: Any = table.get("period", DEFAULT_PERIOD)
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise RpcError(errno.EINVAL, f"heartbeat.period: must be a duration such as 2s, not {text!r}")
    for arg in args:
        name, _, value = arg.partition("=")
        if name != "period":
            raise RpcError(errno.EINVAL, f"heartbeat: unknown argument {arg!r}, known is period=FSD")
        text = value
    try:
        period = float(text) if isinstance(text, (int, float)) else duration.parse(text)
    except ValueError as exc:
        raise RpcError(errno.EINVAL, f"heartbeat.period: {exc}") from None
    if not 0 < period < float("inf"):
        raise RpcError(errno.EINVAL, f"heartbeat.period is {text}, it must be finite and greater than 0")
    return period


def load(ctx: ModuleContext, args: list[str]) -> None:
    if ctx.rank != 0:
        return
    state = {"period": period_of(args, ctx.config)}

    def beat() -> None:
        ctx.publish("heartbeat.pulse")
        ctx.call_later(state["period"], beat)

    def reload(config: dict[str, Any]) -> None:
        state["period"] = period_of(args, config)

    ctx.service(NAME, {})
    ctx.on_stats(lambda: dict(state))
    ctx.on_config(reload)
    ctx.call_later(state["period"], beat)
