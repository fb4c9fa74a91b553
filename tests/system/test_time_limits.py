"""An instance that is a job follows the time of that job, and its jobs without a limit of their own follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from instance import start

_INSIDE = """#!/bin/sh
inherits=$(flux submit sleep inf); own=$(flux submit -t 2m sleep inf)
flux job wait-event $inherits start >/dev/null && flux job wait-event $own start >/dev/null
touch running; until [ -e changed ]; do sleep 0.05; done
RELOAD
flux job wait-event -t10 $inherits resource-update >/dev/null
later=$(flux submit sleep inf); flux job wait-event $later start >/dev/null
for id in '' $inherits $own $later; do flux job timeleft $id; done | tr '\\n' ' ' >left; echo >>left
flux update $own duration=30m && flux job timeleft $own >>left
flux module remove sched-graph; flux module load sched-graph
flux resource list -s allocated -no '{ncores}' >>left
flux kvs get resource.R | grep -o '"expiration": *[0-9]*' | tr -d ' ' >>left
"""


@pytest.mark.parametrize("reload", ["", "flux module reload resource"])
def test_a_longer_time_reaches_the_instance_inside_and_its_jobs(reload: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside.sh"
    inside.write_text(_INSIDE.replace("RELOAD", reload))
    # Four cores of a made-up node: three jobs run at a time.
    script = (
        f"id=$(flux batch -N1 -n4 -t 10m {inside});"
        "until [ -e running ]; do sleep 0.05; done; flux update $id duration=+1h; touch changed;"
        "flux job status $id || { cat flux-*.out; exit 3; }; flux job info $id R"
    )
    r = {"execution": {"R_lite": [{"rank": "0", "children": {"core": "0-3"}}], "nodelist": ["n0"]}, "version": 1}
    r["execution"]["starttime"] = r["execution"]["expiration"] = 0.0  # type: ignore[index]
    (tmp_path / "R.json").write_text(json.dumps(r))
    conf = [f"--conf=resource.path={tmp_path}/R.json", "--conf=resource.noverify=true"]
    done = start(*conf, script, cwd=str(tmp_path))
    assert (done.rc, done.left) == (0, []), done.out + done.err
    lines = (tmp_path / "left").read_text().splitlines()
    instance, inherits, own, later = map(int, lines[0].split())
    assert 3700 < instance <= 4200
    assert instance - 60 <= later <= inherits <= instance
    assert own <= 120
    assert 1200 < int(lines[1]) <= 1800
    assert lines[2] == "3"
    assert lines[3] == f'"expiration":{int(json.loads(done.out.splitlines()[-1])["execution"]["expiration"])}'


def test_a_signal_for_an_instance_is_for_the_jobs_inside_it(tmp_path: Path) -> None:
    task = "trap 'echo warned; exit 0' USR1; touch up; while :; do sleep .02; done"
    (tmp_path / "inside.sh").write_text(f'#!/bin/sh\nflux run -n1 sh -c "{task}"; flux run -n1 echo goes on\n')
    script = (
        "id=$(flux batch -N2 --output=out inside.sh); until [ -e up ]; do sleep .02; done;"
        "flux job kill -s USR1 $id; flux job status $id && cat out"
    )
    done = start("--test-size=2", script, cwd=str(tmp_path))
    # The task's shell may say how its sleep ended, which got the signal too.
    assert (done.rc, done.left) == (0, []), done.out + done.err
    assert "warned" in done.out and done.out.endswith("goes on\n"), done.out + done.err
