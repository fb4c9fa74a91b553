"""The books of users and banks, kept by a program that is a child of the instance on rank 0.

The module runs `flux account-service --follow` with the settings in the table `[accounting]`. The program alone opens
the database: it answers `flux account`, books jobs as they end, and fills the policy mf_priority.
"""

from __future__ import annotations

import errno
from typing import Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.supervisor import Supervisor
from headrace.formats.spec import duration

NAME = "accounting"
# The program registers the service `accounting`.
PROVIDES_SERVICE = False


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Start the program. Raises RpcError(EINVAL) for any argument, and for a wrong setting."""
    if args:
        raise RpcError(
            errno.EINVAL, f"accounting: unknown argument {args[0]!r}: the table [accounting] has the settings"
        )
    service = Supervisor(ctx, command(ctx.config))

    def reconfigure(config: dict[str, Any]) -> None:
        wanted = command(config)
        if wanted != service.command:
            service.restart(wanted)

    ctx.on_config(reconfigure)
    ctx.on_stats(lambda: {"pid": service.pid, "starts": service.starts})


def command(config: dict[str, Any]) -> list[str]:
    """The command for a configuration. Raises RpcError(EINVAL) that names the key."""
    table = config.get("accounting", {})
    words = ["flux", "account-service", "--follow"]
    if database := table.get("database"):
        words.append(f"--path={database}")
    for key, option in (("password_file", "password-file"), ("cluster", "cluster")):
        if value := table.get(key):
            words.append(f"--{option}={value}")
    if "interval" in table:
        words.append(f"--interval={_seconds(table['interval'])}")
    if table.get("count_running"):
        words.append("--count-running")
    return words


def _seconds(value: Any) -> float:
    try:
        seconds = float(value) if isinstance(value, (int, float)) else duration.parse(value)
    except ValueError as exc:
        raise RpcError(errno.EINVAL, f"accounting.interval: {exc}") from None
    if not 0 <= seconds < 1e9:
        raise RpcError(errno.EINVAL, f"accounting.interval: {value!r} is not a duration such as '60s'")
    return seconds
