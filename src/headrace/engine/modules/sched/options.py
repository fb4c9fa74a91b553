"""Arguments of every scheduler, and their effects: `queue-depth`, `log-level`, `pool-class`.

Names, values and error messages are those of flux-core's schedulers, because scripts load schedulers with these
arguments and compare the messages. `mode=limited=N`, `mode=unlimited` and `mode=single` are older forms of
`queue-depth`.
"""

from __future__ import annotations

import errno
import importlib
import logging
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.engine.broker.logbook import LEVEL_NAMES, severity
from headrace.engine.broker.module.context import ModuleContext, RpcError

_BUILT_IN = ("queue-depth", "log-level", "pool-class", "mode")
_UNLIMITED = "unlimited"
# The default resource pool class of flux-core's schedulers. In Headrace, the pool cannot be replaced.
POOL_CLASS = "Rv1Pool"


class OptionError(ValueError):
    """An invalid argument of a scheduler. The text names the argument and the valid values."""


class Options(NamedTuple):
    """The options of a scheduler.

    `limit` is the number of requests that the job manager sends at a time; 0 means no limit. `log_level` is a syslog
    severity; less severe messages are not logged. With `partial_ok`, jobs that have released a part of their resources
    are recovered with the remaining resources (RFC 27). `rest` are the scheduler's own arguments.
    """

    limit: int
    log_level: int = severity(logging.INFO)
    pool_class: str = POOL_CLASS
    partial_ok: bool = True
    rest: tuple[str, ...] = ()

    @property
    def sched_ready(self) -> dict[str, Any]:
        """The body of `job-manager.sched-ready`."""
        return {"mode": "limited", "limit": self.limit} if self.limit else {"mode": _UNLIMITED}

    def __str__(self) -> str:
        depth = self.limit or _UNLIMITED
        return f"queue-depth={depth} log-level={LEVEL_NAMES[self.log_level]} pool-class={self.pool_class}"


def parse(args: Iterable[str], default_limit: int = 0) -> Options:
    """The options in module arguments; unknown arguments are left in `rest`. Raises OptionError."""
    found = Options(default_limit)
    rest = []
    for arg in args:
        key, _, value = arg.partition("=")
        if key == "queue-depth":
            found = found._replace(limit=_depth(value))
        elif key == "mode":
            found = found._replace(limit=_mode(value))
        elif key == "log-level":
            found = found._replace(log_level=_level(value))
        elif key == "pool-class":
            found = found._replace(pool_class=value)
        elif arg == "test-hello-nopartial":
            found = found._replace(partial_ok=False)
        else:
            rest.append(arg)
    return found._replace(rest=tuple(rest))


def unknown(arg: str, own: Sequence[str]) -> OptionError:
    """The error for an argument that is neither a built-in option nor one of the scheduler's `own`."""
    return OptionError(f"unknown argument {arg!r}: built-in options are {', '.join((*_BUILT_IN[:3], *own))}")


def _positive(text: str) -> int:
    return int(text[:9]) if text.isascii() and text.isdigit() else 0


def _depth(value: str) -> int:
    limit = _positive(value)
    if not limit and value != _UNLIMITED:
        raise OptionError(f"queue-depth={value!r} is invalid: expected a positive integer or 'unlimited'")
    return limit


def _mode(value: str) -> int:
    kind, equals, number = value.partition("=")
    if value == _UNLIMITED:
        return 0
    if value == "single":
        return 1
    if kind == "limited" and equals:
        limit = _positive(number)
        if not limit:
            raise OptionError(f"mode=limited= requires a positive integer, got {number!r}")
        return limit
    raise OptionError(f"mode={value!r} is invalid: expected limited=N, unlimited or single")


def _level(value: str) -> int:
    name = value.lower()
    if name not in LEVEL_NAMES:
        raise OptionError(f"log-level={name!r} is invalid: expected one of {', '.join(LEVEL_NAMES)}")
    return LEVEL_NAMES.index(name)


class Log:
    """The scheduler's log: messages less severe than `least` (a syslog severity) are dropped."""

    def __init__(self, ctx: ModuleContext, least: int) -> None:
        self._ctx = ctx
        self._least = least

    def __call__(self, level: int, text: str) -> None:
        if severity(level) <= self._least:
            self._ctx.log(level, text)


def read(ctx: ModuleContext, args: list[str], default_limit: int = 0) -> tuple[Options, Log]:
    """The options of a scheduler, and its log. Raises RpcError(EINVAL)."""
    try:
        options = parse(args, default_limit)
        log = Log(ctx, options.log_level)
        if options.pool_class not in (POOL_CLASS, f"flux.resource.{POOL_CLASS}"):
            raise _pool_class_error(options.pool_class, log)
    except OptionError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
    return options._replace(pool_class=POOL_CLASS), log


def _pool_class_error(name: str, log: Log) -> OptionError:
    """The error for a pool class other than the default: it cannot be loaded, or Headrace does not use it.

    The error is also logged, because scripts look for the cause in the log.
    """
    why = f"the scheduler's own, {POOL_CLASS}, is the only one it uses"
    module, _, attribute = name.partition(":")
    try:
        getattr(importlib.import_module(module.replace("-", "_")), attribute or "pool_class")
    except Exception as exc:
        log(logging.DEBUG, f"Pool class load traceback: {traceback.format_exc()}")
        why = str(exc)
    text = f"Failed to load pool class {name!r}: {why}"
    log(logging.ERROR, text)
    return OptionError(text)
