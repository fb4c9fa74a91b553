"""Thousands of jobs have the same environment, which reaches the agent once: each job still finds its own."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
from instance import FLUX, clean_env, start

COPIES = 60
VARIABLES = {f"SHARED_{number}": f"value {number} of all" for number in range(40)}
SCRIPT = f"""
count='env | grep -c ^SHARED_ >$OUT/$FLUX_JOB_CC; echo "$SHARED_7" >>$OUT/$FLUX_JOB_CC'
flux submit --cc=1-{COPIES} --quiet sh -c "$count"
CHANGED=yes flux submit --quiet sh -c 'echo "$CHANGED $SHARED_7" >$OUT/changed'
flux submit --quiet --env=-SHARED_7 sh -c 'echo "none${{SHARED_7-}}" >$OUT/without'
flux queue drain
flux job info $(flux job last) J >$OUT/J
ls $(flux getattr rundir) >$OUT/rundir
"""


@pytest.mark.parametrize("size", [1, 2])
def test_each_job_has_its_own_environment(tmp_path: Path, size: int) -> None:
    done = start(f"--test-size={size}", "sh", "-ec", SCRIPT, OUT=str(tmp_path), **VARIABLES)
    assert (done.rc, done.err, done.left) == (0, "", [])
    for copy in range(1, COPIES + 1):
        assert (tmp_path / str(copy)).read_text() == "40\nvalue 7 of all\n"
    assert (tmp_path / "changed").read_text() == "yes value 7 of all\n"
    assert (tmp_path / "without").read_text() == "none\n"
    # Or nothing of this was tried.
    assert "environment." in (tmp_path / "rundir").read_text()
    # What users read back is what was submitted, all of it.
    payload = (tmp_path / "J").read_text().split(".")[1]
    environment = json.loads(base64.b64decode(payload))["attributes"]["system"]["environment"]
    assert {name for name in environment if name.startswith("SHARED_")} == VARIABLES.keys() - {"SHARED_7"}


def test_a_run_directory_of_the_users_is_left_without_them(tmp_path: Path) -> None:
    rundir = tmp_path / "run"
    rundir.mkdir(mode=0o700)
    script = "flux submit --cc=1-20 --quiet --wait true; ls $(flux getattr rundir)"
    argv = [FLUX, "start", f"-Srundir={rundir}", "sh", "-ec", script]
    done = subprocess.run(argv, env=clean_env(**VARIABLES), capture_output=True, text=True, check=True, timeout=60)
    assert "environment." in done.stdout
    assert [name for name in os.listdir(rundir) if name.startswith("environment.")] == []
