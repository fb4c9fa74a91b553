"""The `[exec]` table of the configuration: the signals that end a job, and the seconds between them.

Module arguments override the table.
"""

from __future__ import annotations

import errno
import signal
from typing import Any

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec import duration as durations

KEYS = ("kill-timeout", "kill-signal", "term-signal", "max-kill-count", "max-kill-timeout")
# Keys of flux-core that have no effect, because shells run in the agent.
WITHOUT_EFFECT = frozenset(("job-shell", "imp", "service", "method"))


class Settings:
    """The settings from `config`, overridden by `args` (`key=value`, keys of KEYS).

    Raises RpcError(EINVAL) that names the invalid key.
    """

    def __init__(self, config: dict[str, Any], args: list[str]) -> None:
        table = config.get("exec", {})
        if not isinstance(table, dict):
            raise RpcError(errno.EINVAL, "exec: must be a table")
        table = {**table, **_arguments(args)}
        self.term_signal = _signal(table, "term-signal", signal.SIGTERM)
        self.kill_signal = _signal(table, "kill-signal", signal.SIGKILL)
        self.kill_timeout = _seconds(table, "kill-timeout", 5.0)
        # If not 0, this time replaces the number of signals as the limit.
        self.max_kill_timeout = _seconds(table, "max-kill-timeout", 0.0) if "max-kill-timeout" in table else 0.0
        self.max_kills = table.get("max-kill-count", 8)
        if not isinstance(self.max_kills, int) or self.max_kills < 1:
            raise RpcError(errno.EINVAL, f"exec: invalid max-kill-count: {self.max_kills}: less than 1")

    def stats(self) -> dict[str, Any]:
        """The values for `flux module stats job-exec`."""
        return {
            "kill-timeout": self.kill_timeout,
            "max-kill-count": self.max_kills,
            "max-kill-timeout": self.max_kill_timeout,
            "term-signal": _signal_name(self.term_signal),
            "kill-signal": _signal_name(self.kill_signal),
        }


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)


def _arguments(args: list[str]) -> dict[str, Any]:
    pairs = (arg.partition("=") for arg in args)
    return {key: int(value) if value.isdigit() else value for key, _, value in pairs if key in KEYS}


def _signal(table: dict[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if isinstance(value, int) and 0 < value < 65:
        return int(value)
    if isinstance(value, str):
        name = value if value.startswith("SIG") else "SIG" + value
        if name in signal.Signals.__members__:
            return int(signal.Signals[name])
    raise RpcError(errno.EINVAL, f"exec: invalid {key}: {value}: not the name or number of a signal")


def _seconds(table: dict[str, Any], key: str, default: float) -> float:
    value = table.get(key, default)
    try:
        seconds = durations.parse(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError) as exc:
        raise RpcError(errno.EINVAL, f"exec: invalid {key}: {value}: {exc}") from None
    if seconds <= 0:
        raise RpcError(errno.EINVAL, f"exec: invalid {key}: {value}: must be longer than 0")
    return seconds
