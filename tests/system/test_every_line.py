"""Every line that the tasks of short jobs print reaches the terminal of `flux run`, however many jobs end at a time."""

from __future__ import annotations

import json
import sys

import pytest
from instance import start

from sizes import size

# Arguments: how many runs, and how many of them at a time. Prints, as JSON, how many were made, and of each that
# missed lines or failed what came, and what the job's logs have.
RUNS = r"""
import concurrent.futures, json, subprocess, sys

count, at_a_time = map(int, sys.argv[1:])
# Jobs on all nodes; jobs without the lead's node, which have another one's shell keep the output; many tasks a node.
SHAPES = (["-N4"], ["-N3", "--requires=rank:1-3"], ["-N4", "-n8"], ["-N1", "-n2", "--requires=rank:3"])
TASKS = (4, 3, 8, 2)
# The last line is often written after the task's own process has ended.
PROGRAM = "echo out $FLUX_TASK_RANK; echo err $FLUX_TASK_RANK >&2; (echo late $FLUX_TASK_RANK) &"

def text(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout

def one(number):
    shape, tasks = SHAPES[number % 4], TASKS[number % 4]
    name = f"--job-name=run{number}"
    command = ["flux", "run", name, "--label-io", *shape, "sh", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = sorted(f"{rank}: {word} {rank}" for rank in range(tasks) for word in ("out", "late"))
    errors = [f"{rank}: err {rank}" for rank in range(tasks)]
    if (done.returncode, sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines())) == (0, lines, errors):
        return None
    job = text("flux", "jobs", "-ano", "{id}", f"--name=run{number}").strip()
    logs = [text("flux", "job", "eventlog", "-p", path, job) for path in ("eventlog", "exec", "output")]
    return [shape, done.returncode, done.stdout, done.stderr, logs]

with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
    wrong = [found for found in pool.map(one, range(count)) if found]
print(json.dumps({"runs": count, "wrong": wrong}))
"""


@pytest.mark.soak
def test_no_line_of_output_is_lost_by_a_job_that_ends() -> None:
    runs = size("runs")
    options = ("-s4", "-Stbon.topo=kary:2")
    done = start(*options, sys.executable, "-c", RUNS, str(runs), "4")
    assert (done.rc, done.left) == (0, []), done.err
    found = json.loads(done.out)
    assert found["wrong"] == []
    print(f"{found['runs']} runs, no line lost")
