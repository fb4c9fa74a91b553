"""Jobs a second through one broker: real `true` processes with a statedir, simulated execution, submit requests.

The instance is a real `flux start`; the driver inside it submits over the local socket with many requests under way,
then waits until the queue is idle. HyperQueue runs as many `true` in the same run when `--peer-python` has it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

from measure import Row, flux_command, report, times_flux_core
from spawn import spawn_rate

_PEER = r"""
import re, sys, time
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job()
    for _ in range(int(sys.argv[1])):
        job.program(["/bin/true"])
    begin = time.time()
    client.wait_for_jobs([client.submit(job)])
    print("PEER", time.time() - begin)
"""


def drive(count: int, simulated: bool) -> None:
    """Runs inside the instance: submit `count` jobs, wait until idle, print the times."""
    from headrace.client.handle import Handle
    from headrace.spec import jobspec_build

    handle = Handle()
    spec = jobspec_build.from_command(["/bin/true"])
    system = spec["attributes"]["system"]
    system["cwd"] = "/tmp"
    system["environment"] = {"PATH": "/usr/bin:/bin"}
    if simulated:
        system["exec"] = {"test": {"run_duration": "0.0001s"}}
    import base64
    import json

    header = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    signed = header + "." + base64.b64encode(json.dumps(spec).encode()).decode() + ".none"
    body = {"J": signed, "urgency": 16, "flags": 0}
    begin = time.perf_counter()
    calls: list[object] = []
    for _ in range(count):
        calls.append(handle.rpc("job-ingest.submit", body))
        if len(calls) >= 512:
            for call in calls[:256]:
                call.get()  # type: ignore[attr-defined]
            del calls[:256]
    for call in calls:
        call.get()  # type: ignore[attr-defined]
    submitted = time.perf_counter() - begin
    handle.rpc("job-manager.drain").get()
    print("TIMES", submitted, time.perf_counter() - begin)


def in_instance(count: int, simulated: bool, statedir: bool, scheduler: str = "graph") -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as state:
        argv = [flux_command(), "start", f"-Ssched.module={scheduler}"]
        if statedir:
            argv.append(f"-Sstatedir={state}")
        argv += [sys.executable, os.path.abspath(__file__), "--drive", str(count)]
        if simulated:
            argv.append("--simulated")
        out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    found = re.search(r"TIMES (\S+) (\S+)", out)
    if found is None:
        raise SystemExit(f"no times in the driver's output: {out!r}")
    return float(found[1]), float(found[2])


def peer(python: str, count: int) -> float:
    """HyperQueue's seconds for `count` tasks."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, "-c", _PEER, str(count)], cwd=folder, check=True, capture_output=True, text=True)
    found = re.search(r"PEER (\S+)", done.stdout)
    if found is None:
        raise SystemExit("HyperQueue printed no time")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--simulated", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.simulated)
        return
    count = options.count
    rows = []
    # Before and after: a machine whose speed changes favours neither.
    bare = spawn_rate(count, 2)
    _submit, total = in_instance(count, simulated=False, statedir=True)
    bare = (bare + spawn_rate(count, 2)) / 2
    rows.append(Row("bare posix_spawn", bare, "/s"))
    ours = count / total
    rows.append(Row(f"{count} real jobs, statedir", ours, "jobs/s", ">= 1,000", f"{ours / bare:.0%} of bare spawn"))
    if options.peer_python:
        theirs = count / peer(options.peer_python, count)
        rows.append(Row(f"{count} real jobs, HyperQueue", theirs, "jobs/s", "", f"ours is {ours / theirs:.2f}x"))
    else:
        print("no --peer-python: HyperQueue is left out", file=sys.stderr)
    submit, total = in_instance(count * 4, simulated=True, statedir=False)
    graph = count * 4 / total
    submit, total = in_instance(count * 4, simulated=True, statedir=False, scheduler="simple")
    simple = count * 4 / total
    requests = count * 4 / submit
    bare = (bare + spawn_rate(count, 2)) / 2
    note = times_flux_core(137, simple, bare, 4000)
    rows.append(Row(f"{count * 4} simulated jobs, sched-simple", simple, "jobs/s", ">= 4,000", note))
    rows.append(Row(f"{count * 4} simulated jobs, sched-graph", graph, "jobs/s", f">= {simple:,.0f}"))
    rows.append(Row("submit requests", requests, "/s", ">= 6,000", times_flux_core(1235, requests, bare, 6000)))
    report(rows, options.json)


if __name__ == "__main__":
    main()
