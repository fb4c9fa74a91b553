"""sched-simple: the graph scheduler with the name, the arguments and the defaults of flux-core's scheduler.

Each queue is first come, first served. Fluxion's tables in the configuration have no effect on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.sched.options import OptionError, unknown
from headrace.engine.modules.sched.service import Scheduler, Variant
from headrace.engine.modules.sched.settings import Settings, read

NAME = "sched-simple"
# The number of requests that the job manager sends at a time by default, as with flux-core's scheduler.
_QUEUE_DEPTH = 8
# The match policy for each `alloc-mode`; the first is the default.
_MATCH_POLICIES = {"worst-fit": "spread", "best-fit": "packed", "first-fit": "lonode"}


def load(ctx: ModuleContext, args: list[str]) -> None:
    Scheduler(ctx, args, Variant(_settings, _QUEUE_DEPTH, names_policy=False))


def _settings(_config: Mapping[str, Any], args: Sequence[str]) -> Settings:
    """The settings of the arguments: the last `alloc-mode`. Raises OptionError for an invalid or unknown one."""
    mode = next(iter(_MATCH_POLICIES))
    for arg in args:
        key, _, mode = arg.partition("=")
        if key != "alloc-mode":
            raise unknown(arg, ["alloc-mode"])
        if mode not in _MATCH_POLICIES:
            raise OptionError(f"alloc-mode={mode!r} is invalid: expected one of {', '.join(_MATCH_POLICIES)}")
    return read({}, [f"match-policy={_MATCH_POLICIES[mode]}"])
