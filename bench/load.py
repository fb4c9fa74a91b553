"""100,000 jobs through one broker: memory a job, latency of commands at the start and the end, how late answers get.

Each kind of jobs (workload.py) has an instance of its own. Execution is simulated unless `--real` is given: what is
measured is what the instance keeps and how it slows down.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from measure import Compared, flux_command, pss, report_compared, seconds
from workload import KINDS, submissions

_BATCH = 2_000
_SHOWN = 10_000
_PENDING = 10_000
_SUBMITS = 200


def probe() -> None:
    """Asks the broker for an attribute every 5 ms until its input ends: a late answer is a loop that was away.

    In a process of its own: a thread beside the one that submits would wait for the interpreter, not for the broker.
    Prints the times as JSON.
    """
    from headrace.wire.client.handle import Handle

    handle = Handle()
    times = []
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        begin = time.perf_counter()
        handle.rpc("attr.get", {"name": "size"}).get()
        times.append(time.perf_counter() - begin)
    print(json.dumps(times))


def drive(kind: str, count: int, real: bool) -> None:
    """Runs inside the instance and prints one JSON object."""
    from headrace.wire.client.handle import Handle

    handle = Handle()
    # Enough for all that is submitted below, each with an argument of its own.
    bodies = submissions(kind, 2 * count + 100_000, not real)
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])

    def run(number: int, wait: bool = True) -> None:
        calls = []
        for _ in range(number):
            calls.append(handle.rpc("job-ingest.submit", next(bodies)))
            if len(calls) >= 512:
                for call in calls[:256]:
                    call.get()
                del calls[:256]
        for call in calls:
            call.get()
        if wait:
            handle.rpc("job-manager.drain").get()

    def latencies() -> dict[str, float]:
        submits = []
        for _ in range(_SUBMITS):
            begin = time.perf_counter()
            handle.rpc("job-ingest.submit", next(bodies)).get()
            submits.append(time.perf_counter() - begin)
        handle.rpc("job-manager.drain").get()
        return {"submit": statistics.median(submits), "jobs": seconds([flux_command(), "jobs"], 9)}

    run(1000)
    out: dict[str, object] = {"first": latencies(), "pss_before": pss(broker)}
    argv = [sys.executable, os.path.abspath(__file__), "--probe"]
    lags = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rates = []
    for left in range(count, 0, -_BATCH):
        number = min(left, _BATCH)
        begin = time.perf_counter()
        run(number)
        rates.append(number / (time.perf_counter() - begin))
        done = count - left + number
        if done % _SHOWN == 0 or done == count:
            print(f"{done:>9,} jobs  {rates[-1]:,.0f}/s  {pss(broker) / 1e6:.1f} MB", file=sys.stderr)
    lag = sorted(json.loads(lags.communicate()[0]))
    out.update(pss_after=pss(broker), rates=rates, last=latencies())
    out.update(lag_p99=lag[len(lag) * 99 // 100], lag_max=lag[-1])
    out["list"] = seconds([flux_command(), "jobs", "-a", "--count=9000"], 3)
    subprocess.run([flux_command(), "queue", "stop", "--all"], check=True, stdout=subprocess.DEVNULL)
    run(_PENDING, wait=False)
    out["pss_pending"] = pss(broker)
    print("RESULT", json.dumps(out))


def in_instance(kind: str, count: int, real: bool) -> dict[str, Any]:
    """What a driver found in an instance of its own."""
    with tempfile.TemporaryDirectory() as state:
        argv = [flux_command(), "start", f"-Sstatedir={state}", sys.executable, os.path.abspath(__file__), "--drive"]
        argv += ["--kind", kind, "--count", str(count), *(["--real"] if real else [])]
        printed = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(printed.rpartition("RESULT ")[2])
    first, last = found["first"], found["last"]
    found["each"] = (found["pss_after"] - found["pss_before"]) / count
    found["pending"] = (found["pss_pending"] - found["pss_after"]) / _PENDING
    found["slower"] = {name: last[name] / first[name] for name in ("submit", "jobs")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--real", action="store_true", help="run real processes instead of simulated execution")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help=argparse.SUPPRESS)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        probe()
        return
    if options.drive:
        drive(options.kind, options.count, options.real)
        return
    found = {kind: in_instance(kind, options.count, options.real) for kind in KINDS}

    def row(what: str, value: Callable[[dict[str, Any]], float], unit: str, bar: str = "") -> Compared:
        return Compared(what, {kind: value(found[kind]) for kind in KINDS}, unit, bar)

    report_compared(
        [
            row("broker before, PSS", lambda got: got["pss_before"] / 1e6, "MB", "<= 35"),
            row(f"memory a job, after {options.count:,}", lambda got: got["each"], "bytes", "<= 1,000"),
            row(f"memory a pending job, {_PENDING:,} of them", lambda got: got["pending"], "bytes"),
            row("jobs a second, first batch", lambda got: got["rates"][0], "/s"),
            row("jobs a second, last batch", lambda got: got["rates"][-1], "/s"),
            row("submit request, at the start", lambda got: got["first"]["submit"] * 1e3, "ms"),
            row("submit request, at the end", lambda got: got["last"]["submit"] * 1e3, "ms"),
            row("submit request, end to start", lambda got: got["slower"]["submit"], "", "<= 1.5"),
            row("flux jobs, at the start", lambda got: got["first"]["jobs"] * 1e3, "ms"),
            row("flux jobs, at the end", lambda got: got["last"]["jobs"] * 1e3, "ms"),
            row("flux jobs, end to start", lambda got: got["slower"]["jobs"], "", "<= 1.5"),
            row("flux jobs -a, 9,000 of them", lambda got: got["list"], "s", "<= .5"),
            row("a request under load, p99", lambda got: got["lag_p99"] * 1e3, "ms", "<= 20"),
            row("a request under load, longest", lambda got: got["lag_max"] * 1e3, "ms", "<= 100"),
        ],
        options.json,
    )


if __name__ == "__main__":
    main()
