"""A random queue: jobs that wait for each other, fail, run into time limits and are meddled with, and a broker that is
killed in the middle. Whatever the dice say, everybody ends, nobody runs twice, and nobody runs whom an end forbade."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from instance import Done, start

import seeds
from headrace.formats.spec import jobid

# Submits and meddles; `until` jobs are there when it stops, by a kill of the broker if `then` is "kill". What it did is
# a line of JSON each in $DEEDS, written before the next.
QUEUE = """
import base64, json, os, random, signal, subprocess, sys, time
from headrace.wire.client.handle import Handle
from headrace.formats.spec import jobid, jobspec_build

seed, until, then = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dice = random.Random(seed)
h = Handle()
deeds = open(os.environ["DEEDS"], "a+")
deeds.seek(0)
ids = [deed["id"] for deed in map(json.loads, deeds) if deed["kind"] == "submit"]
head = base64.b64encode(b"version\\0i1\\0userid\\0i%d\\0mechanism\\0snone\\0" % os.getuid()).decode()
# Two jobs fill a node.
listed = subprocess.run(["flux", "resource", "list", "-s", "all", "-no", "{ncores} {nnodes}"], capture_output=True)
ncores, nnodes = map(int, listed.stdout.split()[:2])
cores = max(1, ncores // nnodes // 2)

def did(**deed):
    print(json.dumps(deed), file=deeds, flush=True)

broker = int(h.attr_get("broker.pid"))

def kill_broker():
    os.kill(broker, signal.SIGKILL)
    time.sleep(60)

def answer(call):
    try:
        return call.get(timeout=float(os.environ.get("HEADRACE_PATIENCE", "20")))
    except TimeoutError:
        stands_still(call.topic)

def attempt(topic, **body):
    try:
        return answer(h.rpc(topic, body)) or {}
    except OSError:
        return None

def submit():
    does = dice.choice(["sleep 0.02", "exit 3", "sleep 30"])
    command = ["sh", "-c", "echo $FLUX_JOB_ID >>" + os.environ["RUNS"] + "; " + does]
    spec = jobspec_build.from_command(command, cores_per_task=cores, cwd="/tmp", environment={"PATH": "/bin:/usr/bin"})
    system = spec["attributes"]["system"]
    if does == "sleep 30":
        system["duration"] = 0.1
    needs, kind = [], dice.random()
    if ids and kind < 0.5:
        for _ in range(dice.choice([1, 1, 2, 3])):
            scheme = dice.choice(["afterok", "afternotok", "afterany", "after"])
            needs.append({"scheme": scheme, "value": jobid.encode(dice.choice(ids[-15:]))})
    elif kind < 0.75:
        needs.append({"scheme": "singleton", "value": ""})
    if kind > 0.4:
        system["job"] = {"name": f"S{dice.randrange(3)}"}
    if dice.random() < 0.1:
        needs.append({"scheme": "begin-time", "value": str(time.time() + dice.random() * 2)})
    if needs:
        system["dependencies"] = needs
    body = {"J": head + "." + base64.b64encode(json.dumps(spec).encode()).decode() + ".none",
            "urgency": dice.choice([0, 16, 16, 16, 31]), "flags": dice.choice([0, 0, 4])}
    told = attempt("job-ingest.submit", **body)
    if told:
        ids.append(told["id"])
        did(kind="submit", id=told["id"], does=does, needs=needs, name=system.get("job", {}).get("name"))

def meddle():
    id = dice.choice(ids[-30:])
    deed = dice.choice(["cancel", "kill", "urgency", "update"])
    did(kind=deed, id=id)
    if deed == "cancel":
        attempt("job-manager.raise", id=id, severity=0, type="cancel")
    elif deed == "kill":
        attempt("job-manager.kill", id=id, signum=15)
    elif deed == "urgency":
        attempt("job-manager.urgency", id=id, urgency=dice.choice([0, 5, 20]))
    else:
        attempt("job-manager.update", id=id, updates={"attributes.system.duration": 1.0})

def look(*command):
    done = subprocess.run(["flux", *command], capture_output=True, text=True, timeout=60)
    return f"flux {' '.join(command)}\\n{done.stdout}{done.stderr}"

def stands_still(what):
    for job in Handle().rpc("job-manager.list", {"max_entries": 0}).get()["jobs"]:
        id = jobid.encode(job["id"])
        print(look("job", "info", id, "eventlog"), look("job", "info", id, "guest.exec.eventlog"), file=sys.stderr)
    for name in ("job-manager", "job-exec", "sched-graph"):
        print(look("module", "stats", name), file=sys.stderr)
    print(look("dmesg"), f"{what} is not answered: the queue stands still", file=sys.stderr, flush=True)
    # Its clean end would wait for the same.
    kill_broker()

while len(ids) < until:
    submit()
    if ids and dice.random() < 0.15:
        meddle()
if then == "kill":
    time.sleep(dice.random() / 5)
    kill_broker()
for id in ids:
    attempt("job-manager.urgency", id=id, urgency=16)
answer(h.rpc("job-manager.drain"))
logs = {}
for id in ids:
    text = h.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0}).get()["eventlog"]
    logs[id] = [json.loads(line) for line in text.splitlines()]
print(json.dumps(logs))
"""


class _Job:
    """What was asked of a job, and what its events tell; times are None for what did not happen."""

    def __init__(self, deed: dict[str, Any], log: list[dict[str, Any]]) -> None:
        self.deed = deed
        self.names = [event["name"] for event in log]
        self.exceptions = [
            event["context"] for event in log if event["name"] == "exception" and not event["context"]["severity"]
        ]
        times = {event["name"]: event["timestamp"] for event in log}
        self.alloc, self.start, self.clean = times.get("alloc"), times.get("start"), times.get("clean")
        self.status = next((event["context"]["status"] for event in log if event["name"] == "finish"), None)
        self.good = self.status == 0 and not self.exceptions

    def forbids(self, scheme: str, since: float) -> bool:
        """Whether a job that waits for this one by `scheme` may not have been given resources at time `since`."""
        if scheme == "after":
            return self.start is None or self.start > since
        if scheme == "afterok" and not self.good:
            return True
        if scheme == "afternotok" and self.good:
            return True
        return self.clean is None or self.clean > since


def _run(folder: Path, size: int, seed: int, until: int, then: str) -> Done:
    return start(
        f"--test-size={size}",
        f"-Sstatedir={folder / 'state'}",
        sys.executable,
        "-c",
        QUEUE,
        str(seed),
        str(until),
        then,
        RUNS=str(folder / "runs"),
        DEEDS=str(folder / "deeds"),
    )


@pytest.mark.parametrize("size", [1, 3])
def test_a_random_queue_ends_as_its_dependencies_say_over_a_kill(size: int, tmp_path: Path) -> None:
    seed = seeds.seed()
    dice = random.Random(seed)
    killed = _run(tmp_path, size, seed, dice.randrange(40, 80), "kill")
    assert (killed.rc != 0, killed.left) == (True, []), killed.err
    ran = _run(tmp_path, size, seed + 1, 120, "end")
    assert (ran.rc, ran.left) == (0, []), ran.err
    assert "Traceback" not in killed.err + ran.err, killed.err + ran.err

    deeds = [json.loads(line) for line in (tmp_path / "deeds").read_text().splitlines()]
    logs = {int(id): log for id, log in json.loads(ran.out).items()}
    jobs = {deed["id"]: _Job(deed, logs[deed["id"]]) for deed in deeds if deed["kind"] == "submit"}
    meddled = {deed["id"] for deed in deeds if deed["kind"] != "submit"}
    runs = Counter((tmp_path / "runs").read_text().split())
    assert len(jobs) >= 120 and not [id for id, times in runs.items() if times > 1]
    singletons: dict[str, _Job] = {}
    for number, job in jobs.items():
        id, told = jobid.encode(number), f"{jobid.encode(number)}: {job.deed} {job.names}"
        assert job.names[-1] == "clean" and job.names.count("alloc") == job.names.count("free") <= 1, told
        if id in runs:
            assert job.alloc or "flux-restart" in job.names, told
        if job.alloc is None:
            assert job.exceptions, told
            continue
        for need in job.deed["needs"]:
            scheme, value = need["scheme"], need["value"]
            if scheme == "begin-time":
                assert job.alloc >= float(value), told
            elif scheme == "singleton":
                before = singletons.get(job.deed["name"])
                assert before is None or before.clean <= job.alloc, told
                singletons[job.deed["name"]] = job
            else:
                antecedent = jobs[jobid.parse(value)]
                assert not antecedent.forbids(scheme, job.alloc), f"{told} ran after {antecedent.names}"
        if number not in meddled and "flux-restart" not in job.names:
            limited = job.deed["does"] == "sleep 30"
            assert [wrong["type"] for wrong in job.exceptions] == ["timeout"] * limited, told
            assert limited or job.status == {"exit 3": 3 << 8, "sleep 0.02": 0}[job.deed["does"]], told
    assert any(job.good for job in jobs.values())
