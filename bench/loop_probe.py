"""A module for benchmarks (`flux module load bench/loop_probe.py`): how long each iteration of the broker's loop takes.

`loop-probe.begin` starts to record, `loop-probe.end` responds with {cpu, wall, profile}: a list of seconds for each
iteration that took a millisecond or more, once by the processor time of the broker's thread, and once by the clock.
With `{profile: true}` in `begin`, `profile` has the report of cProfile; the times are then too long.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from typing import Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext
from headrace.formats.spec.message import Message

NAME = "loop-probe"
_SHORTEST = 0.001


def load(ctx: ModuleContext, _args: list[str]) -> None:
    loop: Any = ctx.loop
    cpu: list[float] = []
    wall: list[float] = []
    profiles: list[cProfile.Profile] = []

    def begin(msg: Message) -> Any:
        cpu.clear()
        wall.clear()
        loop._run_once = run_once
        if (msg.obj or {}).get("profile"):
            profiles.append(cProfile.Profile())
            profiles[0].enable()
        return EMPTY

    def end(_msg: Message) -> dict[str, Any]:
        report = io.StringIO()
        if profiles:
            profile = profiles.pop()
            profile.disable()
            pstats.Stats(profile, stream=report).sort_stats("tottime").print_stats(45)
        loop.__dict__.pop("_run_once", None)
        return {"cpu": cpu, "wall": wall, "profile": report.getvalue()}

    # The loop waits for its selector first in each iteration. The times count from the return of the selector.
    select, plain, begun = loop._selector.select, loop._run_once, [0.0, 0.0]

    def timed_select(timeout: float | None = None) -> Any:
        events = select(timeout)
        begun[:] = time.thread_time(), time.perf_counter()
        return events

    def run_once() -> None:
        plain()
        used = time.thread_time() - begun[0]
        if used >= _SHORTEST:
            cpu.append(used)
        took = time.perf_counter() - begun[1]
        if took >= _SHORTEST:
            wall.append(took)

    loop._selector.select = timed_select
    ctx.service(NAME, {"begin": begin, "end": end})
