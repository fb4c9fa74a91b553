"""A long queue of short jobs of every kind is meddled with while it runs, and the broker or its agent is killed: what
is told of each job is what it did."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from instance import FLUX, clean_env, processes_with, start

import seeds
from headrace.engine.process import linux

COMMON = """
import base64, faulthandler, json, os, random, signal, subprocess, sys, time
from headrace.wire.client.handle import Handle
from headrace.formats.spec import jobid, jobspec_build

faulthandler.dump_traceback_later(40, exit=True)
h = Handle()
uid = os.getuid()
folder, mark = os.environ["RUNS"], os.environ["HR_TEST"]
head = base64.b64encode(b"version\\0i1\\0userid\\0i%d\\0mechanism\\0snone\\0" % uid).decode()

def submit(script, urgency=16, flags=0, options=None, env=None, duration=0.0, name=None):
    script = 'echo "$FLUX_JOB_ID $(taskset -cp $$)" >>%s/runs; %s' % (folder, script)
    environment = {"PATH": os.environ["PATH"], "HR_TEST": mark, **(env or {})}
    spec = jobspec_build.from_command(
        ["/bin/sh", "-c", script], environment=environment, cwd=folder, duration=duration, name=name)
    spec["attributes"]["system"].setdefault("shell", {}).setdefault("options", {}).update(options or {})
    j = head + "." + base64.b64encode(json.dumps(spec).encode()).decode() + ".none"
    return h.rpc("job-ingest.submit", {"J": j, "urgency": urgency, "flags": flags}).get()["id"]

def attempt(topic, body, *more):
    try:
        return h.rpc(topic, body, *more).get() or {}
    except OSError:
        return None

def queue(on):
    h.rpc("job-manager.queue-start", {"start": on, "reason": "meddling", "all": True}).get()

def lookup(id, key):
    try:
        return h.rpc("job-info.lookup", {"id": id, "keys": [key], "flags": 0}).get()[key]
    except OSError:
        return ""

def told(id):
    events = [json.loads(line) for line in lookup(id, "eventlog").splitlines()]
    out = b""
    for line in lookup(id, "guest.output").splitlines():
        entry = json.loads(line)
        if entry["name"] == "data":
            data = entry["context"].get("data", "")
            raw = base64.b64decode(data) if entry["context"].get("encoding") == "base64" else data.encode()
            out += raw * entry["context"].get("repeat", 1)
    return {"id": jobid.encode(id), "events": events, "out": len(out), "text": out[:100].decode("utf-8", "replace")}

"""

MEDDLE = (
    COMMON
    + """
dice = random.Random(int(sys.argv[1]))
with open(folder + "/input", "w") as file:
    file.write("from a file")
large = {"LARGE_%d" % number: "x" * 100000 for number in range(3)}
# What a kind of job does, and what becomes of it: its wait status, and the size of its output if that is certain.
KINDS = {
    "true": (dict(script="exit 0"), 0, 0),
    "fails": (dict(script="exit 3"), 3 << 8, 0),
    "killed": (dict(script="kill -9 $$"), 137 << 8, 0),
    "talks": (dict(script="head -c 100000 /dev/zero | tr '\\\\0' x"), 0, 100000),
    "sleeps": (dict(script="exec sleep 0.1"), 0, 0),
    "leaves": (dict(script="setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!"), 0, None),
    "waitable": (dict(script="exit 4", flags=4), 4 << 8, 0),
    "named": (dict(script="echo $FLUX_JOB_NAME; exit 0", name="a-name"), 0, None),
    "file": (dict(script="cat", options={"input": {"stdin": {"type": "file", "path": folder + "/input"}}}), 0, 11),
    "reads": (dict(script="read word; echo $word"), 0, 6),
    "terminal": (dict(script="tty >/dev/null && stty size >/dev/null", options={"pty": True}), 0, None),
    "large": (dict(script="echo ${#LARGE_2}", env=large), 0, 7),
    "middling": (dict(script="echo ${#LARGE}", env={"LARGE": "x" * 90000}), 0, 6),
    "free": (dict(script="exit 0", options={"cpu-affinity": "off"}), 0, 0),
    "limited": (dict(script="exec sleep 0.2", duration=30.0), 0, 0),
    "too-long": (dict(script="exec sleep 600", duration=0.3), None, 0),
}
COMMONNESS = [12, 3, 2, 2, 3, 2, 3, 2, 3, 2, 2, 0.5, 2, 2, 0.4, 0.3]
kinds = {}
readers = set()
waitable = set()

def add(kind=None):
    kind = kind or dice.choices(list(KINDS), COMMONNESS)[0]
    id = submit(urgency=dice.choice([16] * 12 + [8, 20]), **KINDS[kind][0])
    kinds[id] = kind
    if kind == "reads":
        readers.add(id)
    if kind == "waitable":
        waitable.add(id)

def feed(id, wait=False):
    f58 = jobid.encode(id)
    io = {"stream": "stdin", "rank": "all", "data": "words\\n", "eof": True}
    if attempt("%d-shell-f%s.stdin" % (uid, f58[1:]), io) is not None:
        readers.discard(id)

def active(limit=0):
    # Not those that are over and wait to be waited for.
    return [job for job in h.rpc("job-manager.list", {"max_entries": limit}).get()["jobs"] if job["state"] != 64]

touched, commands = set(), []
for kind in [*KINDS, *[None] * 200]:
    add(kind)
for turn in range(90):
    left = active(40)
    if not left:
        for _ in range(30):
            add()
        continue
    for job in left:
        if job["id"] in readers:
            feed(job["id"])
    id = dice.choice(left)["id"]
    f58 = jobid.encode(id)
    running = [job["id"] for job in left if job["state"] == 16]
    now = dice.choice(running) if running else id
    deed = dice.randrange(13)
    if deed == 0:
        touched.add(id)
        attempt("job-manager.raise", {"id": id, "severity": 0, "type": "cancel"})
    elif deed == 1:
        touched.add(now)
        attempt("job-manager.raise", {"id": now, "severity": dice.choice([0, 3]), "type": "test", "note": "meddling"})
    elif deed == 2:
        attempt("job-manager.urgency", {"id": id, "urgency": dice.choice([0, 8, 16, 20])})
    elif deed == 3 and kinds[now] != "too-long":
        limit = dice.choice([0.0, 60.0])
        attempt("job-manager.update", {"id": now, "updates": {"attributes.system.duration": limit}})
    elif deed == 4:
        queue(False)
        time.sleep(dice.random() / 30)
        queue(True)
    elif deed == 5:
        commands.append((id, subprocess.Popen(["flux", "job", "attach", f58], stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
        # Its standard input, which stays open, is nobody's; a reader gets its words from us.
    elif deed == 6:
        touched.add(now)
        attempt("job-manager.kill", {"id": now, "signum": dice.choice([1, 9, 15])})
    elif deed == 7:
        command = ["flux", "exec", "-j", jobid.encode(now), "sh", "-c", "sleep 0.05"]
        commands.append((0, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
    elif deed == 8 and dice.random() < 0.4:
        name = dice.choice(["sched-graph", "job-exec", "job-manager"])
        subprocess.run(["flux", "module", "reload", name], check=True)
        if name == "job-exec":
            touched |= set(running)
    elif deed == 9:
        for _ in range(dice.randrange(20)):
            add()
    elif deed == 10:
        feed(now)
    else:
        time.sleep(dice.random() / 20)
deadline = time.monotonic() + 60
while True:
    left = active()
    if not left:
        break
    for job in left:
        if job["urgency"] == 0:
            attempt("job-manager.urgency", {"id": job["id"], "urgency": 16})
        if job["id"] in readers and job["state"] == 16:
            feed(job["id"])
    if time.monotonic() > deadline:
        print("stuck:", [(jobid.encode(job["id"]), kinds[job["id"]], job["state"]) for job in left], file=sys.stderr)
        break
    time.sleep(0.02)
codes = []
for id, command in commands:
    if command.stdin:
        command.stdin.close()
    codes.append((jobid.encode(id) if id else "", command.wait(60)))
for id in waitable:
    assert attempt("job-manager.wait", {"id": id}) is not None, jobid.encode(id)
time.sleep(0.2)
listed = [job["id"] for reply in h.stream("job-list.list", {"max_entries": 0, "attrs": ["state"]}) for job in
          reply["jobs"]]
rundir = h.attr_get("rundir")
print(json.dumps({
    "jobs": [{**told(id), "kind": kind, "wanted": KINDS[kind][1:], "touched": id in touched}
             for id, kind in kinds.items()],
    "listed": [jobid.encode(id) for id in listed],
    "codes": codes,
    "folders": [name for name in os.listdir(rundir) if name.startswith("jobtmp")],
    "dmesg": subprocess.run(["flux", "dmesg"], capture_output=True, text=True).stdout,
}))
"""
)


def names(job: dict[str, Any]) -> list[str]:
    return [event["name"] for event in job["events"]]


def context(job: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((event["context"] for event in job["events"] if event["name"] == name), None)


def runs(path: Path) -> Counter[str]:
    """How often each job began."""
    return Counter(line.split()[0] for line in (path / "runs").read_text().splitlines())


def at_most_once(path: Path) -> Counter[str]:
    counted = runs(path)
    assert not [id for id, times in counted.items() if times > 1]
    return counted


def test_whatever_a_queue_of_all_kinds_suffers_its_events_say_what_each_job_did(tmp_path: Path) -> None:
    seed = seeds.seed()
    ran = start(
        f"-Sstatedir={tmp_path}/state",
        sys.executable,
        "-c",
        MEDDLE,
        str(seed),
        RUNS=str(tmp_path),
        timeout=60,
    )
    assert ran.rc == 0, ran.err
    assert "Traceback" not in ran.err and "stuck" not in ran.err, ran.err
    assert ran.left == []
    told = json.loads(ran.out)
    assert "Traceback" not in told["dmesg"]
    assert told["folders"] == []
    counted = at_most_once(tmp_path)
    assert sorted(told["listed"]) == sorted(job["id"] for job in told["jobs"])
    quiet = 0
    for job in told["jobs"]:
        events, about = names(job), (job["id"], job["kind"], names(job))
        assert events[-1] == "clean" and events.count("free") == events.count("alloc") == ("alloc" in events), about
        finish = context(job, "finish")
        if job["id"] in counted:
            # One whose exec module went has no end of its own.
            assert "alloc" in events and (finish is not None or "exception" in events), about
        elif "start" in events:
            assert "exception" in events or job["touched"], about
        wanted, size = job["wanted"]
        if job["touched"] or "exception" in events:
            continue
        quiet += 1
        assert job["id"] in counted, about
        assert finish == {"status": wanted}, (about, finish)
        assert size is None or job["out"] == size, (about, job["out"], job["text"])
    assert quiet > len(told["jobs"]) // 2
    timed_out = [job for job in told["jobs"] if job["kind"] == "too-long" and "start" in names(job)]
    assert all("exception" in names(job) or job["touched"] for job in timed_out)


ORDER = (
    COMMON
    + """
dice = random.Random(int(sys.argv[1]))
queue(False)
order = []
for _ in range(300):
    urgency = dice.choice([8, 16, 16, 20])
    order.append((-urgency, submit("exit 0", urgency=urgency)))
queue(True)
h.rpc("job-manager.drain").get()
times = []
for _urgency, id in sorted(order):
    events = {event["name"]: event for event in told(id)["events"]}
    assert events["finish"]["context"]["status"] == 0 and "exception" not in events, events
    times.append(events["alloc"]["timestamp"])
print(json.dumps(times))
"""
)


def test_jobs_alike_start_in_the_order_of_their_priorities_and_ids(tmp_path: Path) -> None:
    ran = start(sys.executable, "-c", ORDER, str(seeds.seed()), RUNS=str(tmp_path))
    assert ran.rc == 0, ran.err
    assert ran.left == []
    assert len(at_most_once(tmp_path)) == 300
    times = json.loads(ran.out)
    assert times == sorted(times)


BUSY = (
    COMMON
    + """
for number in range(300):
    submit(["exit 0", "exec sleep 0.02", "setsid sleep 600 >/dev/null 2>&1 </dev/null &"][number % 3])
while not h.rpc("job-list.list", {"max_entries": 1, "attrs": [], "constraint": {"states": [64]}}).get()["jobs"]:
    time.sleep(0.01)
print(h.attr_get("broker.pid"), flush=True)
"""
)
THE_REST = """
h.rpc("job-manager.drain").get()
listed = [job["id"] for reply in h.stream("job-list.list", {"max_entries": 0, "attrs": ["state"]}) for job in
          reply["jobs"]]
print(json.dumps([told(id) for id in listed]))
"""


def state(tmp_path: Path, who: str) -> list[str]:
    return [] if who.endswith("without statedir") else [f"-Sstatedir={tmp_path}/state"]


def killed_amid_work(tmp_path: Path, who: str, then: str) -> tuple[int, str, str]:
    """One of an instance's processes is killed while many short jobs run; its code, output and errors."""
    env = clean_env(TMPDIR=str(tmp_path), HR_TEST=str(tmp_path), RUNS=str(tmp_path))
    command = [FLUX, "start", *state(tmp_path, who), sys.executable, "-c", BUSY + then]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    victim = int(process.stdout.readline())
    if who.startswith("agent"):
        # Its forks have its name until they are executed; a parent comes before its children.
        victim = next(pid for pid in linux.descendants_of(victim) if linux.name_of(pid) == "flux-agent-0")
    time.sleep(random.Random(seeds.seed()).uniform(0.0, 0.3))
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert processes_with(f"HR_TEST={tmp_path}") == []
    assert not list(tmp_path.glob("flux-*"))
    return process.returncode, out, err


def check_those_that_ran(tmp_path: Path, jobs: list[dict[str, Any]]) -> None:
    counted = at_most_once(tmp_path)
    assert len(jobs) == 300
    for job in jobs:
        events = names(job)
        assert events[-1] == "clean", job
        if "exception" not in events:
            assert job["id"] in counted and context(job, "finish") == {"status": 0}, job
    # Only what ran or was about to run is lost.
    assert sum("exception" in names(job) for job in jobs) < 20 + len(os.sched_getaffinity(0))


def test_when_the_broker_is_killed_none_goes_on_and_no_job_runs_twice(tmp_path: Path) -> None:
    code, _, _ = killed_amid_work(tmp_path, "broker", "time.sleep(60)")
    assert code != 0
    env = clean_env(TMPDIR=str(tmp_path), HR_TEST=str(tmp_path), RUNS=str(tmp_path))
    command = [FLUX, "start", *state(tmp_path, ""), sys.executable, "-c", COMMON + THE_REST]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    check_those_that_ran(tmp_path, json.loads(ran.stdout))
    assert processes_with(f"HR_TEST={tmp_path}") == []


@pytest.mark.parametrize("who", ["agent", "agent without statedir"])
def test_when_the_agent_is_killed_another_goes_on_and_no_job_runs_twice(tmp_path: Path, who: str) -> None:
    code, out, err = killed_amid_work(tmp_path, who, THE_REST)
    assert code == 0, err
    assert "the exec agent was killed: its jobs are lost" in err
    check_those_that_ran(tmp_path, json.loads(out))
