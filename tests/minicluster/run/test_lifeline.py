"""What is done when a process is killed inside its lifeline, seen from outside."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, sys
from headrace.minicluster.run.lifeline import lifeline
with lifeline(lambda number: os.write(1, b"killed %d" % number)) as say:
    say(7)
    say(42)
    {body}
"""


def output(body: str) -> str:
    # The pipe of its output is open until the waiting process has ended, too.
    command = [sys.executable, "-c", PROGRAM.format(body=body)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False).stdout


def test_the_last_number_is_known_after_a_kill() -> None:
    assert output("os.kill(os.getpid(), signal.SIGKILL)") == "killed 42"


def test_an_exception_counts_as_a_kill() -> None:
    assert output("sys.exit(3)") == "killed 42"


def test_nothing_is_done_after_an_ordinary_end() -> None:
    assert output("pass") == ""
