"""What every benchmark here shares: running a command in an instance, memory and CPU of processes, the table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

# Of bare posix_spawn, processes a second, on the machine and at the time where the figures of flux-core were taken.
RECORDED_RATE = 2200


@dataclass
class Row:
    """One measured figure. `unit` says which way is better only through `bar`."""

    what: str
    value: float
    unit: str
    bar: str = ""
    note: str = ""


@dataclass
class Compared:
    """A figure of each kind of jobs (workload.py), `values` by kind."""

    what: str
    values: dict[str, float]
    unit: str
    bar: str = ""
    note: str = ""


def flux_command() -> str:
    """The `flux` beside this Python."""
    return os.path.join(os.path.dirname(sys.executable), "flux")


def seconds(argv: Sequence[str], repeat: int = 1, env: dict[str, str] | None = None) -> float:
    """Median wall time of `argv` in seconds. Raises CalledProcessError when it fails."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def timed(fn: Callable[[], object]) -> float:
    begin = time.perf_counter()
    fn()
    return time.perf_counter() - begin


def pss(pid: int) -> int:
    """Proportional set size in bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def against(recorded: float, took: float, bare: float, bar: float) -> str:
    """How `took` stands to what flux-core took, both in the same unit: `recorded` where bare posix_spawn made
    `RECORDED_RATE` processes a second, which would be more here, where it makes `bare`.
    """
    there = recorded * RECORDED_RATE / bare
    return f"{took / there:.3f} of flux-core scaled to this machine ({there:.3g}), bar {bar / recorded:.3f}"


def times_flux_core(recorded: float, rate: float, bare: float, bar: float) -> str:
    """Like `against`, of rates, things a second."""
    there = recorded * bare / RECORDED_RATE
    return f"{rate / there:.1f}x flux-core scaled to this machine ({there:,.0f}), bar {bar / recorded:.1f}x"


def report(rows: list[Row], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    width = max(len(row.what) for row in rows)
    for row in rows:
        bar = f"  bar {row.bar}" if row.bar else ""
        note = f"  {row.note}" if row.note else ""
        print(f"{row.what:<{width}}  {row.value:>12,.3f} {row.unit}{bar}{note}")


def report_compared(rows: list[Compared], as_json: bool) -> None:
    """The table of both kinds of jobs, with the realistic figure as a part of the identical one."""
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    width = max(len(row.what) for row in rows)
    print(f"{'':<{width}}  {'identical':>10}  {'realistic':>10}  {'ratio':>5}")
    for row in rows:
        identical, realistic = row.values["identical"], row.values["realistic"]
        bar = f"  bar {row.bar}" if row.bar else ""
        note = f"  {row.note}" if row.note else ""
        figures = f"{_figure(identical):>10}  {_figure(realistic):>10}  {realistic / identical:>5.2f}"
        print(f"{row.what:<{width}}  {figures}  {row.unit}{bar}{note}")


def _figure(value: float) -> str:
    """Three digits that count, and all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
