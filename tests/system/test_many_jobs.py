"""Many jobs through one broker: all of them end, and neither memory nor latency grows with those that have ended."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest
from instance import start

from sizes import limit, size

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(limit(120))]

# Bytes of resident memory that an ended job may keep, and what an instance may grow by apart from its jobs: pages of
# the allocator, caches that fill up to their bound.
EACH, APART = 1_000, 4 << 20
# How much slower a request may be after all jobs than after the first of them; medians, on a machine that others use.
SLOWER = 2.0

# Runs inside the instance, whose execution is simulated: what is looked at is what the broker keeps.
DRIVER = """
import base64, json, os, sys, time
from headrace.client.handle import Handle
from headrace.spec import jobspec_build

count = int(sys.argv[1])
handle = Handle()
broker = int(handle.attr_get("broker.pid"))

def submission(number):
    spec = jobspec_build.from_command(["true", str(number)], cwd="/tmp", environment={"PATH": "/usr/bin"})
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": "0.0001s"}}
    head = base64.b64encode(b"version\\0i1\\0userid\\0i%d\\0mechanism\\0snone\\0" % os.getuid()).decode()
    return {"J": f"{head}.{base64.b64encode(json.dumps(spec).encode()).decode()}.none", "urgency": 16, "flags": 0}

def run(numbers):
    calls = [handle.rpc("job-ingest.submit", submission(number)) for number in numbers]
    ids = [call.get()["id"] for call in calls]
    handle.rpc("job-manager.drain").get()
    return ids

def memory():
    with open(f"/proc/{broker}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))

def latencies():
    times = []
    for number in range(100):
        begin = time.perf_counter()
        handle.rpc("job-ingest.submit", submission(number)).get()
        times.append(time.perf_counter() - begin)
    handle.rpc("job-manager.drain").get()
    return times

ids = set(run(range(1000)))
first, before = latencies(), memory()
for begin in range(0, count, 1000):
    ids.update(run(range(begin, min(begin + 1000, count))))
after, last = memory(), latencies()
request = {"max_entries": 0, "attrs": ["result"], "constraint": {"states": [64]}}
ended = {job["id"]: job["result"] for part in handle.stream("job-list.list", request) for job in part["jobs"]}
print(json.dumps({
    "ids": len(ids), "lost": len(ids - ended.keys()), "failed": sum(result != 1 for result in ended.values()),
    "before": before, "after": after, "first": first, "last": last,
}))
"""


def test_memory_and_latency_do_not_grow_with_the_jobs_that_have_ended(tmp_path: Path) -> None:
    count = size("jobs")
    (tmp_path / "driver.py").write_text(DRIVER)
    done = start(
        f"-Sstatedir={tmp_path / 'state'}", sys.executable, str(tmp_path / "driver.py"), str(count), timeout=limit(110)
    )
    assert done.rc == 0, done.err
    found = json.loads(done.out)
    grown = found["after"] - found["before"]
    slower = statistics.median(found["last"]) / statistics.median(found["first"])
    print(f"{count} jobs: {grown / count:.0f} bytes a job, submit {slower:.2f}x at the end")
    assert (found["ids"], found["lost"], found["failed"]) == (count + 1000, 0, 0)
    assert grown <= EACH * count + APART
    assert slower <= SLOWER
    assert done.left == []
