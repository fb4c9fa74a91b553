"""The clock of the day is set while jobs run: who has a time limit keeps the time that was left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from instance import start

# Python's time of day from where a file says so, as a clock that somebody sets.
_CLOCK = """
import os, time
def shifted(real=time.time, path=os.environ["HR_CLOCK"]):
    try:
        with open(path) as file:
            return real() + float(file.read() or 0)
    except OSError:
        return real()
time.time = shifted
"""
_SCRIPT = """
id=$(flux submit -t 2s --signal=USR1@1s --output=out sh -c 'trap "echo warned" USR1; while :; do sleep .05; done')
other=$(flux submit -t 10m sleep 3)
flux job wait-event $id shell.start -p exec >/dev/null; flux job wait-event $other start >/dev/null
echo $SHIFT >$HR_CLOCK
timeout 20 flux job wait-event $id finish >/dev/null; echo $?
flux jobs -no '{result} {exception.type}' $id
flux job status $other; echo $?
rm $HR_CLOCK; cat out
"""


@pytest.mark.parametrize("shift", [-3600, 3600])
def test_a_time_limit_is_counted_from_the_start_on(shift: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_CLOCK)
    r = {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}], "nodelist": ["n0"], "starttime": 0, "expiration": 0}
    (tmp_path / "R.json").write_text(json.dumps({"version": 1, "execution": r}))
    conf = [f"--conf=resource.path={tmp_path}/R.json", "--conf=resource.noverify=true"]
    env = {"PYTHONPATH": str(tmp_path), "HR_CLOCK": str(tmp_path / "clock"), "SHIFT": str(shift)}
    done = start(*conf, _SCRIPT, cwd=str(tmp_path), **env)
    lines = done.out.splitlines()
    assert lines[:3] == ["0", "TIMEOUT timeout", "0"], done.out + done.err
    assert "warned" in lines
    (told,) = [line for line in done.err.splitlines() + lines if "will expire in" in line] or [""]
    assert 0 <= float(told.partition("expire in ")[2].partition("s")[0]) <= 1
    assert done.left == []
