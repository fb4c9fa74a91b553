"""The heartbeat: rank 0 publishes `heartbeat.pulse` once per period, as a clock for all subscribers.

Each broker counts the pulses that it receives. After `warn_thresh` periods without a pulse it logs a warning. After
`timeout` it exits, because rank 0 is unreachable even if the connection looks intact. The table `[heartbeat]` has
`period` and `timeout` (FSD, RFC 23; default 2 s and 5 minutes) and `warn_thresh`. Module arguments with these names
override the table.
"""

from __future__ import annotations

import errno
import logging
from math import inf
from typing import Any, NamedTuple

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.formats.spec import duration
from headrace.formats.spec.message import Message

NAME = "heartbeat"
_PULSE = "heartbeat.pulse"
_NEVER = -1.0


class Settings(NamedTuple):
    """The settings of the heartbeat.

    `period`: seconds between pulses. `timeout`: seconds without a pulse after which the broker exits (-1: never).
    `warn_thresh`: periods without a pulse after which a warning is logged (0: never).
    """

    period: float = 2.0
    timeout: float = 300.0
    warn_thresh: int = 3


def settings_of(args: list[str], config: dict[str, Any]) -> Settings:
    """The settings from arguments and the table `[heartbeat]`.

    Raises RpcError(EINVAL) that names the key and its valid values.
    """
    table = config.get("heartbeat", {})
    if not isinstance(table, dict):
        raise RpcError(errno.EINVAL, f"heartbeat: must be a table, not {table!r}")
    values: dict[str, Any] = {key: value for key, value in table.items() if key in Settings._fields}
    for arg in args:
        name, _, text = arg.partition("=")
        if name not in Settings._fields:
            known = "period=FSD, timeout=FSD, warn_thresh=N"
            raise RpcError(errno.EINVAL, f"heartbeat: unknown argument {arg!r}, known are {known}")
        values[name] = int(text) if name == "warn_thresh" and text.isascii() and text.isdigit() else text
    usual = Settings()
    period = _seconds("period", values.get("period"), usual.period)
    timeout = _seconds("timeout", values.get("timeout"), usual.timeout)
    if not 0 < period < inf:
        raise RpcError(errno.EINVAL, f"heartbeat.period is {period:g}s, it must be finite and greater than 0")
    if timeout in (0, inf):
        timeout = _NEVER
    elif timeout < period:
        raise RpcError(errno.EINVAL, f"heartbeat.timeout is {timeout:g}s, less than the period of {period:g}s")
    thresh = values.get("warn_thresh", usual.warn_thresh)
    if isinstance(thresh, bool) or not isinstance(thresh, int) or thresh < 0:
        raise RpcError(errno.EINVAL, f"heartbeat.warn_thresh: must be a number of periods, 0 or more, not {thresh!r}")
    return Settings(period, timeout, thresh)


def _seconds(key: str, text: Any, usual: float) -> float:
    if text is None:
        return usual
    if not isinstance(text, str):
        raise RpcError(errno.EINVAL, f"heartbeat.{key}: must be a duration such as '2s', not {text!r}")
    try:
        return duration.parse(text)
    except ValueError as exc:
        raise RpcError(errno.EINVAL, f"heartbeat.{key}: {exc}") from None


class _Heartbeat:
    """One broker's heartbeat. Rank 0 publishes pulses, every broker counts them."""

    def __init__(self, ctx: ModuleContext, args: list[str]) -> None:
        self.ctx = ctx
        self.args = args
        self.settings = settings_of(args, ctx.config)
        self.count = 0
        self.heard = ctx.monotonic()
        self.warned = False
        # The time for which `_check` is scheduled.
        self.look_due = inf
        self.beating: Any = None
        self.watching: Any = None
        ctx.service(NAME, {})
        ctx.on_stats(lambda: {**self.settings._asdict(), "count": self.count})
        ctx.on_stats_clear(self._clear)
        ctx.on_config(self._configure)
        ctx.subscribe(_PULSE, self._pulse)
        self._begin()

    def _configure(self, config: dict[str, Any]) -> None:
        new = settings_of(self.args, config)
        if new != self.settings:
            self.settings = new
            self._begin()

    def _clear(self) -> None:
        self.count = 0

    def _begin(self) -> None:
        """Restart publishing and watching with the current settings."""
        if self.ctx.rank == 0:
            if self.beating is not None:
                self.beating.cancel()
            self.beating = self.ctx.call_later(self.settings.period, self._beat)
        self.heard = self.ctx.monotonic()
        self._watch()

    def _beat(self) -> None:
        self.beating = self.ctx.call_later(self.settings.period, self._beat)
        self.ctx.publish(_PULSE)

    def _pulse(self, _msg: Message) -> None:
        self.count += 1
        self.heard = self.ctx.monotonic()
        if self.warned:
            # The pulse was only late, so a warning must be possible again.
            self._watch()

    # -- overdue heartbeats

    def _watch(self) -> None:
        """Restart the checks for overdue pulses, with no warning logged yet."""
        if self.watching is not None:
            self.watching.cancel()
        self.watching = None
        self.look_due = inf
        self.warned = False
        self._check()

    def _check(self) -> None:
        """Check the deadlines for warning and exit, and schedule the next check.

        Pulses do not reset the timer, so it wakes a broker only once in several periods.
        """
        period, timeout, thresh = self.settings
        now = self.ctx.monotonic()
        if now - self.look_due > period:
            # This broker was suspended (SIGSTOP) and could not receive pulses, so the time without a pulse restarts.
            self.heard = now
        silent = now - self.heard
        warn_at = period * thresh if thresh and not self.warned else inf
        if timeout > 0 and silent >= timeout:
            self._end(silent)
            return
        if silent >= warn_at:
            self.warned, warn_at = True, inf
            self.ctx.log(logging.WARNING, f"heartbeat overdue: the last one was {silent:.1f}s ago")
        next_at = min(warn_at, timeout if timeout > 0 else inf)
        if next_at < inf:
            self.look_due = now + next_at - silent
            self.watching = self.ctx.call_later(next_at - silent, self._check)

    def _end(self, silent: float) -> None:
        self.ctx.log(logging.CRITICAL, f"no heartbeat for {silent:.1f}s: this broker exits")
        self.ctx.call("broker.heartbeat-lost")


def load(ctx: ModuleContext, args: list[str]) -> None:
    _Heartbeat(ctx, args)
