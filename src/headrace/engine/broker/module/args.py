"""Arguments of modules. An unknown argument is refused, since the caller expects an effect."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable

from headrace.engine.broker.module.context import ModuleContext, RpcError


def only(ctx: ModuleContext, args: list[str], known: Iterable[str] = (), without_effect: Iterable[str] = ()) -> None:
    """Refuse every argument (`name` or `name=value`) that is not in `known`. Raises RpcError(EINVAL).

    Flux's arguments in `without_effect` are accepted with a warning in the log.
    """
    takes, idle = list(known), set(without_effect)
    for arg in args:
        name = arg.partition("=")[0]
        if name in idle:
            ctx.log(logging.WARNING, f"{arg}: has no effect")
        elif name not in takes:
            what = f"known are {', '.join(takes)}" if takes else "it takes none"
            raise RpcError(errno.EINVAL, f"{ctx.name}: unknown argument {arg!r}, {what}")
