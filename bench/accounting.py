"""The policy of accounting in the job manager: submissions, priorities of waiting jobs, and the tree of fair share.

- `submit`: jobs a second that one broker accepts with the policy and 10,000 associations, and without the policy.
- `reprioritize`: new fair shares for 100,000 waiting jobs, which change all their priorities: processor time of the
  broker and of the scheduler's process, and how long the broker's loop was busy without a break.
- `fairshare`: the fair share of 5,000 associations.

The first two start an instance (`flux start` with a statedir). Times are processor times, so other load on the machine
matters little; the clock's are for quiet machines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from jobs import _cpu as cpu_of_parts
from measure import Row, flux_command, report
from workload import TRUE

_HERE = os.path.abspath(__file__)
_PROBE = os.path.join(os.path.dirname(_HERE), "loop_probe.py")
_UNDER_WAY = 512
_PASSES = 5
_MOST = 2**31 - 1


def association(userid: int, bank: str, fairshare: float, default: str = "") -> dict[str, Any]:
    """A row of the associations without limits."""
    return {
        "userid": userid,
        "bank": bank,
        "def_bank": default or bank,
        "fairshare": fairshare,
        "max_running_jobs": _MOST,
        "max_active_jobs": _MOST,
        "queues": "",
        "active": 1,
        "projects": "*",
        "def_project": "*",
        "max_nodes": _MOST,
        "max_cores": _MOST,
        "max_sched_jobs": _MOST,
    }


def bodies(count: int, banks: int) -> Iterator[dict[str, Any]]:
    """`count` bodies of `job-ingest.submit` in the names of `banks` banks by turns; without banks, none is named."""
    import base64

    from headrace.formats.spec import jobspec_build

    head = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    texts = []
    for bank in range(max(banks, 1)):
        spec = jobspec_build.from_command([TRUE])
        system = spec["attributes"]["system"]
        system.update(cwd="/tmp", environment={"PATH": "/usr/bin:/bin"}, exec={"test": {"run_duration": "3600s"}})
        if banks:
            system["bank"] = f"bank{bank}"
        texts.append(f"{head}.{base64.b64encode(json.dumps(spec).encode()).decode()}.none")
    for number in range(count):
        yield {"J": texts[number % len(texts)], "urgency": 16, "flags": 0}


def submit_all(handle: Any, jobs: Iterator[dict[str, Any]]) -> None:
    calls = []
    for body in jobs:
        calls.append(handle.rpc("job-ingest.submit", body))
        if len(calls) >= _UNDER_WAY:
            for call in calls[: _UNDER_WAY // 2]:
                call.get()
            del calls[: _UNDER_WAY // 2]
    for call in calls:
        call.get()


def drive_submit(count: int, associations: int, profile: bool) -> dict[str, Any]:
    """Runs inside the instance. One job has all resources, so that only the submissions of the others are measured."""
    from headrace.wire.client.handle import Handle

    handle = Handle()
    subprocess.run([flux_command(), "module", "load", _PROBE], check=True)
    if associations:
        rows = [association(100_000 + number, f"bank{number % 100}", 0.5) for number in range(associations - 1)]
        rows.append(association(os.getuid(), "bank0", 0.25))
        handle.rpc("job-manager.jobtap", {"load": "mf_priority.so", "conf": {"config": {"associations": rows}}}).get()
    submit_all(handle, bodies(2_000, 0))
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])
    if profile:
        handle.rpc("loop-probe.begin", {"profile": True}).get()
    before, begin = cpu_of_parts(broker), time.perf_counter()
    submit_all(handle, bodies(count, 0))
    took = time.perf_counter() - begin
    used = {name: seconds - before.get(name, 0) for name, seconds in cpu_of_parts(broker).items()}
    if profile:
        print(handle.rpc("loop-probe.end").get()["profile"], file=sys.stderr)
    return {"took": took, **used}


def drive_reprioritize(count: int, banks: int, profile: bool) -> dict[str, Any]:
    """Runs inside the instance: one job has all resources, and the others wait at the scheduler."""
    from headrace.wire.client.handle import Handle

    handle = Handle()
    draw = random.Random(1)
    subprocess.run([flux_command(), "module", "load", _PROBE], check=True)

    def rows() -> list[dict[str, Any]]:
        return [association(os.getuid(), f"bank{bank}", draw.random(), "bank0") for bank in range(banks)]

    handle.rpc("job-manager.jobtap", {"load": "mf_priority.so", "conf": {"config": {"associations": rows()}}}).get()
    cores = os.cpu_count() or 1
    submit_all(handle, bodies(count + cores, banks))
    broker = int(handle.rpc("attr.get", {"name": "broker.pid"}).get()["value"])
    settle(broker)
    passes = []
    for _ in range(1 if profile else _PASSES):
        before = cpu_of_parts(broker)
        handle.rpc("loop-probe.begin", {"profile": profile}).get()
        begin = time.perf_counter()
        handle.rpc("job-manager.mf_priority.rec_update", {"data": rows()}).get()
        handle.rpc("job-manager.mf_priority.reprioritize").get()
        took = time.perf_counter() - begin
        settle(broker)
        found = handle.rpc("loop-probe.end").get()
        used = {name: seconds - before.get(name, 0) for name, seconds in cpu_of_parts(broker).items()}
        passes.append({"took": took, **used, "cpu": sorted(found["cpu"]), "wall": sorted(found["wall"])})
        if profile:
            print(found["profile"], file=sys.stderr)
    return {"passes": passes}


def settle(broker: int) -> None:
    """Wait until broker and scheduler are idle."""
    last = cpu_of_parts(broker)
    while True:
        time.sleep(0.5)
        now = cpu_of_parts(broker)
        if sum(now.values()) - sum(last.values()) < 0.03:
            return
        last = now


def in_instance(what: str, count: int, rows: int, profile: bool = False) -> dict[str, Any]:
    """What a driver found in an instance of its own."""
    with tempfile.TemporaryDirectory() as state:
        argv = [flux_command(), "start", f"-Sstatedir={state}", sys.executable, _HERE, what, "--drive"]
        argv += ["--count", str(count), "--rows", str(rows), *(["--profile"] if profile else [])]
        out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(out.rpartition("RESULT ")[2])
    return found


def submit(count: int, rows: int, profile: bool) -> list[Row]:
    """Jobs submitted with the policy and without it, by turns."""
    found: dict[int, list[dict[str, Any]]] = {0: [], rows: []}
    for _ in range(1 if profile else 3):
        for associations, runs in found.items():
            runs.append(in_instance("submit", count, associations, profile))
    cpu = {key: min(one["broker"] for one in runs) / count * 1e6 for key, runs in found.items()}
    rate = {key: max(count / one["took"] for one in runs) for key, runs in found.items()}
    return [
        Row("submit without policy, CPU of the broker", cpu[0], "us/job"),
        Row(f"submit with {rows:,} associations, CPU of the broker", cpu[rows], "us/job"),
        Row("submits a second with the policy, by CPU", cpu[0] / cpu[rows] * 100, "%", ">= 90"),
        Row("submits a second with the policy, by the clock", rate[rows] / rate[0] * 100, "%", ">= 90"),
    ]


def reprioritize(count: int, rows: int, profile: bool) -> list[Row]:
    """The median of a few passes. A checkpoint of the journal, which packs all active jobs, is in some of them."""
    passes = in_instance("reprioritize", count, rows, profile)["passes"]

    def median(value: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(map(value, passes))

    def at(kind: str, part: float) -> Callable[[dict[str, Any]], float]:
        return lambda one: one[kind][int((len(one[kind]) - 1) * part)] * 1e3

    total = [one["broker"] + one["scheduler"] for one in passes]
    return [
        Row(f"new priorities of {count:,} jobs, CPU", statistics.median(total), "s", "<= 1.5"),
        Row("the same, longest pass", max(total), "s"),
        Row("of it the broker", median(lambda one: one["broker"]), "s"),
        Row("of it the scheduler", median(lambda one: one["scheduler"]), "s"),
        Row("until the response, by the clock", median(lambda one: one["took"]), "s"),
        Row("iteration of the broker's loop, CPU, p99", median(at("cpu", 0.99)), "ms", "<= 20"),
        Row("iteration of the broker's loop, CPU, longest", median(at("cpu", 1)), "ms"),
        Row("iteration of the broker's loop, by the clock, p99", median(at("wall", 0.99)), "ms"),
    ]


def fairshare(count: int) -> list[Row]:
    """A tree with banks of 50 users, in banks of up to 20 banks."""
    from headrace.sched.accounting.tree import Bank, User, fair_share

    draw = random.Random(1)
    leaves = [f"bank{number}" for number in range(max(count // 50, 1))]
    parents = [f"top{number}" for number in range(-(-len(leaves) // 20))]
    banks = [Bank("root", "", 1), *(Bank(name, "root", draw.randint(1, 9)) for name in parents)]
    banks += [Bank(name, parents[number // 20], draw.randint(1, 9)) for number, name in enumerate(leaves)]
    users = [
        User(f"user{number}", leaves[number % len(leaves)], draw.randint(1, 9), draw.random() * 1e6)
        for number in range(count)
    ]
    times = []
    for _ in range(_PASSES):
        begin = time.process_time()
        fair_share(banks, users)
        times.append(time.process_time() - begin)
    return [Row(f"fair share of {count:,} associations, without the database", statistics.median(times), "s")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("submit", "reprioritize", "fairshare"))
    parser.add_argument("--count", type=int, default=0, help="jobs: by default 20,000 to submit, 100,000 that wait")
    parser.add_argument("--rows", type=int, default=0, help="associations: by default 10,000, or 1,000 of waiting jobs")
    parser.add_argument("--profile", action="store_true", help="print the profile of the broker's thread")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive = drive_submit if options.what == "submit" else drive_reprioritize
        print("RESULT", json.dumps(drive(options.count, options.rows, options.profile)))
    elif options.what == "submit":
        report(submit(options.count or 20_000, options.rows or 10_000, options.profile), options.json)
    elif options.what == "reprioritize":
        report(reprioritize(options.count or 100_000, options.rows or 1_000, options.profile), options.json)
    else:
        report(fairshare(options.rows or 5_000), options.json)


if __name__ == "__main__":
    main()
