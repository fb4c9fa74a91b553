"""`flux start --test-size=N true` from exec to clean stop, and what idle brokers cost.

flux-core does not install from a registry: what it was seen to take is scaled by the rate of bare posix_spawn, measured
here in turns with the starts.
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import statistics
import subprocess
import time

from measure import RECORDED_RATE, Row, against, cpu_seconds, flux_command, pss, report, seconds
from spawn import spawn_rate

import headrace

# Brokers: our bar and what flux-core took, in seconds.
SIZES = {1: (0.20, 0.82), 4: (0.25, 1.36), 16: (0.40, 3.5), 64: (0.90, 13.6)}


def start(size: int, repeat: int) -> Row:
    """Medians of `repeat` starts and of the floor in between."""
    bar, recorded = SIZES[size]
    times = []
    rates = []
    for _ in range(repeat):
        rates.append(spawn_rate(300, 2))
        times.append(seconds([flux_command(), "start", f"--test-size={size}", "true"]))
    took = statistics.median(times)
    note = against(recorded, took, statistics.median(rates), bar)
    return Row(f"start --test-size={size} true", took, "s", f"<= {bar}", note)


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            with open(f"/proc/{parent}/task/{parent}/children") as children:
                found.extend(int(child) for child in children.read().split())
        except OSError:
            continue
    return found


def idle(size: int, wait: float) -> list[Row]:
    """PSS and CPU of an idle instance of several brokers over `wait` seconds."""
    program = f"flux exec -r 1-{size - 1} flux getattr broker.pid; echo up; sleep 1000"
    process = subprocess.Popen([flux_command(), "start", f"--test-size={size}", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        followers = [int(line) for line in iter(process.stdout.readline, b"up\n")]
        time.sleep(2)
        pids = descendants(process.pid)
        before = {pid: cpu_seconds(pid) for pid in pids}
        time.sleep(wait)
        used = sum(cpu_seconds(pid) - before[pid] for pid in pids)
        memory = sorted((pss(pid) for pid in pids), reverse=True)
        follower = max(pss(pid) for pid in followers)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return [
        Row(f"{size} idle brokers, all {len(pids)} processes, PSS", sum(memory) / 1e6, "MB"),
        Row("largest process, PSS", memory[0] / 1e6, "MB", "<= 35 (lead)"),
        Row("largest broker of a follower, PSS", follower / 1e6, "MB", "<= 8"),
        Row("CPU of one core, each broker", 100 * used / wait / size, "%", "<= .1"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # Where Python may not write bytecode, each start would compile what was edited since, in time and memory.
    compileall.compile_dir(os.path.dirname(headrace.__file__), quiet=1)
    rows = [start(size, options.repeat) for size in SIZES]
    rows.append(Row("bare posix_spawn", spawn_rate(2000, 2), "/s", "", f"{RECORDED_RATE:,} where flux-core was timed"))
    rows += idle(4, options.idle_seconds)
    report(rows, options.json)


if __name__ == "__main__":
    os.environ.pop("FLUX_URI", None)
    main()
