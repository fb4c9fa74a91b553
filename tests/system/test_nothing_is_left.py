"""What a cancelled job is that does not want to go, and what it leaves."""

from __future__ import annotations

import os
from pathlib import Path

from instance import start

STUBBORN = """#!/bin/sh
trap '' TERM
setsid sh -c 'echo $$ > pid; exec sleep 1000' &
sleep 1001
"""
WAIT = "until [ -s pid ]; do sleep .02; done"


def cancelled(folder: Path, script: str) -> str:
    """Run `script` in an instance in `folder`, where STUBBORN is `./job`; returns what it printed."""
    (folder / "job").write_text(STUBBORN)
    os.chmod(folder / "job", 0o755)
    done = start("--conf=exec.kill-timeout=0.2s", script, cwd=str(folder))
    assert not done.left
    return done.out


def test_after_the_kill_timeout_nothing_of_a_job_is_left(tmp_path):
    script = f"""
    id=$(flux submit --wait-event=start ./job); {WAIT}
    flux cancel $id; flux job wait-event -q $id clean
    kill -0 $(cat pid) 2>/dev/null || echo gone
    """
    assert cancelled(tmp_path, script) == "gone\n"


def test_after_the_kill_timeout_nothing_of_a_nested_instance_is_left(tmp_path):
    script = f"""
    id=$(flux alloc --bg -n1)
    flux proxy $id flux submit --wait-event=start ./job >/dev/null; {WAIT}
    flux cancel $id; flux job wait-event -q $id clean
    while kill -0 $(cat pid) 2>/dev/null; do sleep .02; done; echo gone
    """
    assert cancelled(tmp_path, script) == "gone\n"
