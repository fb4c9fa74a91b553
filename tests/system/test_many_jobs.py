"""Many jobs through one broker: all of them end, and neither memory nor the cost of another grows with those that have
ended.

The cost is the CPU time that the broker takes for a job, from its submission to its end. How long a submission takes
would depend on what else the machine does.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest
from instance import start

from sizes import limit, size

pytestmark = [pytest.mark.slow, pytest.mark.soak]

# Bytes of resident memory that an ended job may keep, and what an instance may grow by apart from its jobs: pages of
# the allocator, caches that fill up to their bound.
EACH, APART = 1_000, 4 << 20
# How much more CPU time a job may take after all jobs than after the first of them: medians of portions.
COSTLIER = 1.5

# Runs inside the instance, whose execution is simulated: what is looked at is what the broker keeps.
DRIVER = """
import base64, json, os, sys
from headrace.wire.client.handle import Handle
from headrace.formats.spec import jobspec_build

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

def cpu():
    # Nanoseconds of all threads: the kernel's ticks of 10 ms would be too coarse for a portion.
    spent = 0
    for thread in os.listdir(f"/proc/{broker}/task"):
        with open(f"/proc/{broker}/task/{thread}/schedstat") as stat:
            spent += int(stat.read().split()[0])
    return spent

def costs():
    each = []
    for portion in range(9):
        begin = cpu()
        for number in range(100):
            handle.rpc("job-ingest.submit", submission(number)).get()
        handle.rpc("job-manager.drain").get()
        each.append((cpu() - begin) / 100)
    return each

ids = set(run(range(1000)))
first, before = costs(), memory()
for begin in range(0, count, 1000):
    ids.update(run(range(begin, min(begin + 1000, count))))
after, last = memory(), costs()
request = {"max_entries": 0, "attrs": ["result"], "constraint": {"states": [64]}}
ended = {job["id"]: job["result"] for part in handle.stream("job-list.list", request) for job in part["jobs"]}
print(json.dumps({
    "ids": len(ids), "lost": len(ids - ended.keys()), "failed": sum(result != 1 for result in ended.values()),
    "before": before, "after": after, "first": first, "last": last,
}))
"""


def test_memory_and_cost_do_not_grow_with_the_jobs_that_have_ended(tmp_path: Path) -> None:
    count = size("jobs")
    (tmp_path / "driver.py").write_text(DRIVER)
    done = start(
        f"-Sstatedir={tmp_path / 'state'}", sys.executable, str(tmp_path / "driver.py"), str(count), timeout=limit(600)
    )
    assert done.rc == 0, done.err
    found = json.loads(done.out)
    grown = found["after"] - found["before"]
    first, last = (statistics.median(found[name]) for name in ("first", "last"))
    print(
        f"{count} jobs: {grown / count:.0f} bytes a job, CPU time of the broker for a job {first / 1000:.0f} us, "
        f"{last / first:.2f}x at the end"
    )
    assert (found["ids"], found["lost"], found["failed"]) == (count + 1000, 0, 0)
    assert grown <= EACH * count + APART
    assert last <= COSTLIER * first
    assert done.left == []
