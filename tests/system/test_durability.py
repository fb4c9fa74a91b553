"""`kill -9` of the lead broker under load: with a statedir every printed id is there after the restart, none twice, and
no job runs twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from instance import FLUX, clean_env, processes_with

import seeds
from sizes import limit, size

SUBMITTER = """
import os, sys
from headrace.wire.client.handle import Handle
from headrace.formats.spec import jobspec_build
import base64, json
handle = Handle()
spec = jobspec_build.from_command(["/bin/sh", "-c", "echo $FLUX_JOB_ID >> $HR_TEST/runs"])
spec["attributes"]["system"]["cwd"] = "/tmp"
spec["attributes"]["system"]["environment"] = {"HR_TEST": os.environ["HR_TEST"]}
head = base64.b64encode(b"version\\0i1\\0userid\\0i%d\\0mechanism\\0snone\\0" % os.getuid()).decode()
body = {"J": head + "." + base64.b64encode(json.dumps(spec).encode()).decode() + ".none", "urgency": 16, "flags": 0}
print(handle.attr_get("broker.pid"), flush=True)
while True:
    print(handle.rpc("job-ingest.submit", body).get()["id"], flush=True)
"""
LISTING = """
import json
from headrace.wire.client.handle import Handle
handle = Handle()
handle.rpc("job-manager.drain").get()
jobs = [job for reply in handle.stream("job-list.list", {"max_entries": 0, "attrs": ["state", "result"]}) for job in
        reply["jobs"]]
print(json.dumps([[job["id"], job["state"]] for job in jobs]))
"""


@pytest.mark.soak
def test_no_acknowledged_job_is_lost_when_the_lead_is_killed(tmp_path):
    rounds = size("kills")
    seed = seeds.seed()
    dice = random.Random(seed)
    state = tmp_path / "state"
    env = clean_env(TMPDIR=str(tmp_path), HR_TEST=str(tmp_path))
    printed: set[int] = set()
    for _ in range(rounds):
        process = subprocess.Popen(
            [FLUX, "start", f"-Sstatedir={state}", sys.executable, "-c", SUBMITTER],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        time.sleep(dice.uniform(0.02, 0.4))
        os.kill(pid, signal.SIGKILL)
        for line in process.stdout:
            if line.endswith("\n"):
                number = int(line)
                assert number not in printed, "an id was given twice"
                printed.add(number)
        process.wait(timeout=60)
    after = subprocess.run(
        [FLUX, "start", f"-Sstatedir={state}", sys.executable, "-c", LISTING],
        env=env,
        capture_output=True,
        text=True,
        timeout=limit(360),
        check=False,
    )
    assert after.returncode == 0, after.stderr
    listed = json.loads(after.stdout)
    known = dict(map(tuple, listed))
    assert len(known) == len(listed), "a job is listed twice"
    assert printed, "the load never got a job in"
    lost = sorted(printed - set(known))
    assert not lost, f"{len(lost)} of {len(printed)} acknowledged jobs are gone, first {lost[:3]}, {len(known)} listed"
    assert {known[number] for number in printed} == {64}, "a job is stuck"
    # A job that was running, or had just been started, is lost with the broker: it must not run once more.
    runs = Counter((tmp_path / "runs").read_text().split())
    assert len(runs) > len(printed) / 2
    assert not [id for id, times in runs.items() if times > 1]
    assert not processes_with(f"HR_TEST={tmp_path}")
    print(f"{rounds} kills: {len(printed)} jobs acknowledged, {len(lost)} lost, {len(runs)} have run")
