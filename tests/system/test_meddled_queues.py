"""A queue of short jobs that is meddled with while it runs: each runs at most once, and its events say what it did."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from instance import start

import seeds
from headrace.formats.spec import jobid

MEDDLE = """
import json, os, random, subprocess, sys, time
from headrace.wire.client.handle import Handle
from headrace.formats.spec import jobspec_build
import base64

dice = random.Random(int(sys.argv[1]))
h = Handle()
head = base64.b64encode(b"version\\0i1\\0userid\\0i%d\\0mechanism\\0snone\\0" % os.getuid()).decode()

def submit(urgency=16):
    log = os.environ["RUNS"]
    spec = jobspec_build.from_command(["/bin/sh", "-c", "echo $FLUX_JOB_ID >> " + log])
    spec["attributes"]["system"].update(cwd="/tmp", environment={})
    body = {"J": head + "." + base64.b64encode(json.dumps(spec).encode()).decode() + ".none",
            "urgency": urgency, "flags": 0}
    return h.rpc("job-ingest.submit", body).get()["id"]

def attempt(topic, body):
    try:
        return h.rpc(topic, body).get() or {}
    except OSError:
        return None

ids = [submit() for _ in range(400)]
canceled = []
for _ in range(120):
    left = h.rpc("job-manager.list", {"max_entries": 40}).get()["jobs"]
    near = [job["id"] for job in left] or ids
    id = dice.choice(near)
    deed = dice.randrange(8)
    if deed <= 2:
        if attempt("job-manager.raise", {"id": id, "severity": 0, "type": "cancel"}) is not None:
            canceled.append(id)
    elif deed == 3:
        attempt("job-manager.urgency", {"id": id, "urgency": dice.choice([0, 8, 16, 20])})
    elif deed == 4:
        attempt("job-manager.update", {"id": id, "updates": {"attributes.system.duration": dice.choice([0.0, 60.0])}})
    elif deed == 5:
        h.rpc("job-manager.queue-start", {"start": False, "reason": "meddling", "all": True}).get()
        time.sleep(dice.random() / 50)
        h.rpc("job-manager.queue-start", {"start": True, "all": True}).get()
    elif deed == 6:
        ids.append(submit(dice.choice([8, 16, 20])))
    elif dice.random() < 0.2:
        name = dice.choice(["sched-graph", "job-exec"])
        subprocess.run(["flux", "module", "reload", name], check=True)
for job in h.rpc("job-manager.list", {"max_entries": 0}).get()["jobs"]:
    if job["urgency"] == 0:
        attempt("job-manager.urgency", {"id": job["id"], "urgency": 16})
h.rpc("job-manager.drain").get()
events = {}
for id in ids:
    log = h.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0}).get()["eventlog"]
    events[id] = [json.loads(line)["name"] for line in log.splitlines()]
print(json.dumps([canceled, events]))
"""


def test_each_job_runs_at_most_once_and_as_its_events_say(tmp_path: Path) -> None:
    seed = seeds.seed()
    state = tmp_path / "state"
    ran = start(
        f"-Sstatedir={state}", sys.executable, "-c", MEDDLE, str(seed), RUNS=str(tmp_path / "runs"), timeout=120
    )
    assert ran.rc == 0, ran.err
    assert ran.left == []
    assert "Traceback" not in ran.err, ran.err
    canceled, told = json.loads(ran.out)
    runs = Counter((tmp_path / "runs").read_text().split())
    assert not [id for id, times in runs.items() if times > 1]
    assert len(runs) > 100
    for number, names in told.items():
        id = jobid.encode(int(number))
        assert names[-1] == "clean", names
        if id in runs:
            assert "alloc" in names, f"{id} ran, and nobody was told: {names}"
        elif "start" in names:
            assert "exception" in names, f"{id} should have run: {names}"
        assert names.count("free") == names.count("alloc") == ("alloc" in names), names
    assert canceled


RELOADS = """
for i in 1 2 3 4 5; do flux module reload job-exec || exit 3; sleep 0.1; done
flux queue drain
flux dmesg
flux jobs -ano '{id.f58plain} {status}'
"""


def test_another_exec_module_takes_up_the_queue_and_no_job_twice(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    submit = f"flux submit --quiet --cc=1-150 sh -c 'echo $FLUX_JOB_ID >> {runs}; sleep 0.02'"
    ran = start("sh", "-c", submit + RELOADS, timeout=240)
    assert ran.rc == 0, ran.err
    assert ran.left == []
    assert "Error" not in ran.out + ran.err
    jobs = dict(line.split() for line in ran.out.splitlines() if line.endswith(("COMPLETED", "FAILED")))
    assert len(jobs) == 150
    counted = Counter(line.replace("ƒ", "f") for line in runs.read_text().split())
    assert max(counted.values()) == 1
    # Who did not run failed with the module that should have run it; all others went on.
    assert {id for id, status in jobs.items() if status == "COMPLETED"} <= set(counted)
    assert len(counted) > 120
