"""Jobs a second through one broker: real `true` processes with a statedir, simulated execution, submit requests.

Each row is measured with identical and with realistic jobs (workload.py). The instance is a real `flux start`. The
driver inside it submits over the local socket with many requests under way and waits until the queue is idle, which is
after every end of a job is in the journal. HyperQueue runs as many `true` in the same run when `--peer-python` has it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from measure import Compared, cpu_seconds, flux_command, report_compared, times_flux_core
from spawn import spawn_rate
from workload import KINDS, environment, submissions

_HERE = os.path.abspath(__file__)
# Answers that are read at once, while as many requests again are under way.
_BATCH = 256


def _cpu(broker: int) -> dict[str, float]:
    """Seconds that a broker, its exec agent and its scheduler's process have used."""
    from headrace.engine.process import linux

    used = {"broker": cpu_seconds(broker)}
    for pid in linux.descendants_of(broker):
        name = linux.name_of(pid)
        for part, start in (("agent", "flux-agent"), ("scheduler", "sched-")):
            if name.startswith(start):
                used[part] = cpu_seconds(pid)
    return used


def drive(kind: str, count: int, simulated: bool) -> None:
    """Runs inside the instance: submit `count` jobs, wait until idle, print times (seconds) as JSON."""
    from headrace.wire.client.handle import Handle

    handle = Handle()
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])
    before, begin = _cpu(broker), time.perf_counter()
    calls = []
    for body in submissions(kind, count, simulated):
        calls.append(handle.rpc("job-ingest.submit", body))
        if len(calls) >= 2 * _BATCH:
            for call in calls[:_BATCH]:
                call.get()
            del calls[:_BATCH]
    for call in calls:
        call.get()
    submitted = time.perf_counter() - begin
    handle.rpc("job-manager.drain").get()
    total = time.perf_counter() - begin
    used = {name: seconds - before.get(name, 0) for name, seconds in _cpu(broker).items()}
    print("RESULT", json.dumps({"submit": submitted, "total": total, **used}))


def drive_command(kind: str, count: int) -> None:
    """Runs inside the instance: time one `flux submit --cc` with only the environment of the jobs, wait until idle."""
    from headrace.wire.client.handle import Handle

    handle = Handle()
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])
    env = {**environment(kind), **{name: value for name, value in os.environ.items() if name.startswith("FLUX_")}}
    argv = [flux_command(), "submit", f"--cc=1-{count}", "--setattr=exec.test.run_duration=0.0001s", "/bin/true"]
    if kind == "realistic":
        argv.append("{cc}")
    else:
        # A command without an environment to pass on makes jobs as small as those of the other rows.
        argv[2:2] = ["--env=-*"]
    before, begin = _cpu(broker), time.perf_counter()
    subprocess.run(argv, check=True, env=env, stdout=subprocess.DEVNULL)
    submitted = time.perf_counter() - begin
    handle.rpc("job-manager.drain").get()
    total = time.perf_counter() - begin
    used = {name: seconds - before.get(name, 0) for name, seconds in _cpu(broker).items()}
    print("RESULT", json.dumps({"submit": submitted, "total": total, **used}))


def in_instance(kind: str, count: int, how: str, statedir: bool = False) -> dict[str, float]:
    """Seconds that a driver took in an instance of its own; `how` is real, simulated or command."""
    with tempfile.TemporaryDirectory() as state:
        argv = [flux_command(), "start"]
        if statedir:
            argv.append(f"-Sstatedir={state}")
        argv += [sys.executable, _HERE, "--drive", how, "--kind", kind, "--count", str(count)]
        out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(out.rpartition("RESULT ")[2])
    return found


def peer(python: str, kind: str, count: int) -> float:
    """HyperQueue's seconds for `count` tasks."""
    script = os.path.join(os.path.dirname(_HERE), "hyperqueue_tasks.py")
    with tempfile.TemporaryDirectory() as folder:
        argv = [python, script, kind, str(count)]
        done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return float(done.stdout.rpartition("PEER ")[2])


def real(count: int, python: str, bar: str, times_bar: str) -> list[Compared]:
    """Rows of real jobs and of what they are compared with, which is measured before and after them."""
    ours, bare, theirs = {}, {}, {}
    cpu: dict[str, dict[str, float]] = {part: {} for part in ("broker", "agent", "scheduler")}
    for kind in KINDS:
        before = spawn_rate(count, 2, environment(kind))
        found = in_instance(kind, count, "real", statedir=True)
        bare[kind] = (before + spawn_rate(count, 2, environment(kind))) / 2
        ours[kind] = count / found["total"]
        for part, values in cpu.items():
            values[kind] = found[part] / count * 1e6
        if python:
            theirs[kind] = count / peer(python, kind, count)
    share = {kind: f"{ours[kind] / bare[kind]:.0%}" for kind in KINDS}
    note = f"of bare spawn: {share['identical']}, {share['realistic']}"
    rows = [
        Compared(f"{count:,} bare posix_spawn", bare, "/s"),
        Compared(f"{count:,} real jobs, statedir", ours, "jobs/s", bar, note),
        *(Compared(f"{count:,} real jobs, CPU of the {part}", values, "us/job") for part, values in cpu.items()),
    ]
    if python:
        note = "ours: " + ", ".join(f"{ours[kind] / theirs[kind]:.2f}x" for kind in KINDS)
        rows.append(Compared(f"{count:,} tasks, HyperQueue", theirs, "tasks/s", f"ours {times_bar}", note))
    return rows


def simulated(count: int) -> list[Compared]:
    """Rows of simulated execution and of submissions."""
    bare = spawn_rate(count // 4, 2)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in KINDS:
        found[kind] = {
            "graph": in_instance(kind, count, "simulated"),
            "command": in_instance(kind, count, "command"),
        }
    bare = (bare + spawn_rate(count // 4, 2)) / 2

    def rates(how: str, what: str) -> dict[str, float]:
        return {kind: count / found[kind][how][what] for kind in KINDS}

    def cpu(how: str) -> dict[str, float]:
        return {kind: found[kind][how]["broker"] / count * 1e6 for kind in KINDS}

    jobs, requests, command = rates("graph", "total"), rates("graph", "submit"), rates("command", "submit")
    peer_jobs = times_flux_core(137, jobs["realistic"], bare, 2500)
    peer_requests = times_flux_core(1235, requests["realistic"], bare, 5000)
    return [
        Compared(f"{count:,} simulated jobs, sched-graph", jobs, "jobs/s", ">= 2,500", peer_jobs),
        Compared(f"{count:,} simulated jobs, CPU of the broker", cpu("graph"), "us/job"),
        Compared(f"{count:,} submit requests, jobs run meanwhile", requests, "/s", ">= 5,000", peer_requests),
        Compared(f"flux submit --cc=1-{count}, jobs run meanwhile", command, "/s", ">= 3,000"),
        Compared(f"flux submit --cc=1-{count}, CPU of the broker", cpu("command"), "us/job"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="real jobs; of simulated ones four times as many")
    parser.add_argument("--large", type=int, default=20_000, help="real jobs of the long run, 0 for none")
    parser.add_argument("--peer-python", default="", help="a Python that has hyperqueue")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", choices=("real", "simulated", "command"), help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.drive == "command":
        drive_command(options.kind, options.count)
        return
    if options.drive:
        drive(options.kind, options.count, options.drive == "simulated")
        return
    if not options.peer_python:
        print("no --peer-python: HyperQueue is left out", file=sys.stderr)
    rows = real(options.count, options.peer_python, ">= 40% of bare spawn", ">= 1.25x")
    if options.large:
        rows += real(options.large, options.peer_python, "", ">= 2x")
    rows += simulated(options.count * 4)
    report_compared(rows, options.json)


if __name__ == "__main__":
    main()
