"""Arguments that every scheduler takes, and what follows from them alone: `queue-depth`, `log-level`, `pool-class`.

Names, values and error texts are those of flux-core's schedulers, because scripts load schedulers with them and look
for the texts. `mode=limited=N`, `mode=unlimited` and `mode=single` are older spellings of `queue-depth`.
"""

from __future__ import annotations

import errno
import importlib
import logging
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.broker.logbook import LEVEL_NAMES, severity
from headrace.broker.module.context import ModuleContext, RpcError

_BUILT_IN = ("queue-depth", "log-level", "pool-class", "mode")
_UNLIMITED = "unlimited"
# The name of the pool of resources that flux-core's schedulers use by default. Ours are no classes to be replaced.
POOL_CLASS = "Rv1Pool"


class OptionError(ValueError):
    """An argument that a scheduler cannot use; the text names it and says what would be right."""


class Options(NamedTuple):
    """What the arguments say.

    `limit` is how many requests the job manager sends at a time, 0 any number. `log_level` is a syslog severity, above
    which the scheduler logs nothing. `partial_ok` says that jobs which gave back part of their resources are taken up
    again with the rest (RFC 27). `rest` are arguments of the scheduler's own.
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
    """The options in module arguments; those it does not know are left in `rest`. Raises OptionError."""
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
    """The error for an argument that is neither built in nor one of the scheduler's `own`."""
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
    """The scheduler's log: nothing less severe than `least` (a syslog severity) is written."""

    def __init__(self, ctx: ModuleContext, least: int) -> None:
        self._ctx = ctx
        self._least = least

    def __call__(self, level: int, text: str) -> None:
        if severity(level) <= self._least:
            self._ctx.log(level, text)


def read(ctx: ModuleContext, args: list[str], default_limit: int = 0) -> tuple[Options, Log]:
    """The options of a scheduler that is loaded, and its log. Raises RpcError(EINVAL)."""
    try:
        options = parse(args, default_limit)
        log = Log(ctx, options.log_level)
        if options.pool_class not in (POOL_CLASS, f"flux.resource.{POOL_CLASS}"):
            raise _pool_class_error(options.pool_class, log)
    except OptionError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
    return options._replace(pool_class=POOL_CLASS), log


def _pool_class_error(name: str, log: Log) -> OptionError:
    """What is wrong with a pool class of the user's own: it cannot be loaded, or it can and is not followed here.

    The log is told as well, because scripts look there for the cause.
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
