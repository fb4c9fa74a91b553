"""sched-simple: the graph scheduler with name, arguments and defaults of flux-core's scheduler.

Each queue is first come, first served. Fluxion's configuration tables have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.sched.options import OptionError, unknown
from headrace.engine.modules.sched.service import Scheduler, Variant
from headrace.engine.modules.sched.settings import Settings, read

NAME = "sched-simple"
# The default number of requests that the job manager sends at a time, as with flux-core's scheduler.
_QUEUE_DEPTH = 8
# The match policy of each `alloc-mode`. The first is the default.
_MATCH_POLICIES = {"worst-fit": "spread", "best-fit": "packed", "first-fit": "lonode"}


def load(ctx: ModuleContext, args: list[str]) -> None:
    Scheduler(ctx, args, Variant(_settings, _QUEUE_DEPTH, names_policy=False))


def _settings(_config: Mapping[str, Any], args: Sequence[str]) -> Settings:
    """The settings from the last `alloc-mode` argument. Raises OptionError for any other argument."""
    mode = next(iter(_MATCH_POLICIES))
    for arg in args:
        key, _, mode = arg.partition("=")
        if key != "alloc-mode":
            raise unknown(arg, ["alloc-mode"])
        if mode not in _MATCH_POLICIES:
            raise OptionError(f"alloc-mode={mode!r} is invalid: expected one of {', '.join(_MATCH_POLICIES)}")
    return read({}, [f"match-policy={_MATCH_POLICIES[mode]}"])
