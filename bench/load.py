"""100,000 jobs through one broker: memory a job, latency of commands at the start and the end, how late answers get.

Execution is simulated unless `--real` is given: what is measured is what the instance keeps and how it slows down.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

from measure import Row, flux_command, pss, report, seconds

_BATCH = 2_000
_SHOWN = 10_000
_PENDING = 10_000
_SUBMITS = 200


def probe() -> None:
    """Asks the broker for an attribute every 5 ms until its input ends: a late answer is a loop that was away.

    In a process of its own: a thread beside the one that submits would wait for the interpreter, not for the broker.
    Prints the times as JSON.
    """
    from headrace.client.handle import Handle

    handle = Handle()
    times = []
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        begin = time.perf_counter()
        handle.rpc("attr.get", {"name": "size"}).get()
        times.append(time.perf_counter() - begin)
    print(json.dumps(times))


def submission(real: bool) -> dict[str, object]:
    """A `job-ingest.submit` request for `true`."""
    from headrace.spec import jobspec_build

    spec = jobspec_build.from_command(["/bin/true"])
    system = spec["attributes"]["system"]
    system["cwd"] = "/tmp"
    system["environment"] = {"PATH": "/usr/bin:/bin"}
    if not real:
        system["exec"] = {"test": {"run_duration": "0.0001s"}}
    header = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    return {"J": f"{header}.{base64.b64encode(json.dumps(spec).encode()).decode()}.none", "urgency": 16, "flags": 0}


def drive(count: int, real: bool) -> None:
    """Runs inside the instance and prints one JSON object."""
    from headrace.client.handle import Handle

    handle = Handle()
    body = submission(real)
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])

    def run(number: int, wait: bool = True) -> None:
        calls = []
        for _ in range(number):
            calls.append(handle.rpc("job-ingest.submit", body))
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
            handle.rpc("job-ingest.submit", body).get()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--real", action="store_true", help="run real processes instead of simulated execution")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        probe()
        return
    if options.drive:
        drive(options.count, options.real)
        return
    with tempfile.TemporaryDirectory() as state:
        argv = [flux_command(), "start", f"-Sstatedir={state}", sys.executable, os.path.abspath(__file__), "--drive"]
        argv += ["--count", str(options.count), *(["--real"] if options.real else [])]
        printed = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(printed.rpartition("RESULT ")[2])
    first, last = found["first"], found["last"]
    each = (found["pss_after"] - found["pss_before"]) / options.count
    pending = (found["pss_pending"] - found["pss_after"]) / _PENDING
    report(
        [
            Row("broker before, PSS", found["pss_before"] / 1e6, "MB", "<= 35"),
            Row(f"memory a job, after {options.count:,}", each, "bytes", "<= 1,000"),
            Row(f"memory a pending job, {_PENDING:,} of them", pending, "bytes"),
            Row("jobs a second, first batch", found["rates"][0], "/s"),
            Row("jobs a second, last batch", found["rates"][-1], "/s"),
            Row("submit request, at the start", first["submit"] * 1e3, "ms"),
            Row("submit request, at the end", last["submit"] * 1e3, "ms", "<= 1.5x", _times(last, first, "submit")),
            Row("flux jobs, at the start", first["jobs"] * 1e3, "ms"),
            Row("flux jobs, at the end", last["jobs"] * 1e3, "ms", "<= 1.5x", _times(last, first, "jobs")),
            Row("flux jobs -a, 9,000 of them", found["list"], "s", "<= .5"),
            Row("a request under load, p99", found["lag_p99"] * 1e3, "ms", "<= 20"),
            Row("a request under load, longest", found["lag_max"] * 1e3, "ms", "<= 100"),
        ],
        options.json,
    )


def _times(last: dict[str, float], first: dict[str, float], key: str) -> str:
    return f"{last[key] / first[key]:.2f}x"


if __name__ == "__main__":
    main()
