"""Jobs whose tasks cannot be started on one of their nodes: how they end, and what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from instance import start


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ("--input={}/in.{{{{node.id}}}} sleep 60", 1, "error opening input file '{}/in.1': No such file or directory"),
        ("--output={}/out.{{{{node.id}}}}/x sleep 60", 1, "error opening output file '{}/out.1/x': No such file"),
        ("{}/run.{{{{node.id}}}}", 127, "start failed: {}/run.1: No such file or directory"),
        ("-o verbose=wrong sleep 60", 1, "invalid verbose=wrong"),
    ],
)
def test_the_node_that_cannot_start_its_tasks_says_how_the_job_ends(
    tmp_path: Path, options: str, code: int, reason: str
) -> None:
    (tmp_path / "in.0").touch()
    (tmp_path / "out.0").mkdir()
    os.symlink("/usr/bin/yes", tmp_path / "run.0")
    done = start("-s2", f"flux run -N2 {options.format(tmp_path)}")
    assert done.rc == code
    assert reason.format(tmp_path) in done.err
    assert f"task(s) exited with exit code {code}" in done.err
    assert not done.left
