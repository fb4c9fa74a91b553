"""Whose end is that of a test instance, and when: the supervisor with small programs in place of brokers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Arguments: a folder, options of the launch, seconds in place of the 20 that are the default, the programs of all
# ranks, and one that rank 1 is started again with. Prints the result.
SUPERVISE = """
import json, os, sys
from headrace.engine.broker.launch import supervisor
from headrace.engine.broker.launch.options import LaunchOptions

folder, options, supervisor._EXIT_TIMEOUT, programs, again = sys.argv[1], *map(json.loads, sys.argv[2:])

def start(rank):
    pid = os.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", programs[rank]])
    return pid

def ended(rank):
    if again and rank == 1 and programs[1] != again:
        programs[1] = again
        brokers.restart(1)

brokers = supervisor.Supervisor(LaunchOptions(size=len(programs), **options), folder, 1, start, None)
brokers.on_end = ended
brokers.listen()
for rank in range(len(programs)):
    brokers.start(rank)
print(brokers.run())
"""
# Longer than the test waits.
NEVER = "exec sleep 600"


def supervised(folder: Path, options: dict[str, object], default: float, *programs: str, again: str = "") -> str:
    words = [sys.executable, "-c", SUPERVISE, str(folder), *map(json.dumps, (options, default, programs, again))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout + done.stderr


def test_by_default_the_instance_ends_some_time_after_a_follower_has_failed(tmp_path: Path) -> None:
    begin = time.monotonic()
    out = supervised(tmp_path, {}, 1, NEVER, "exit 3", NEVER)
    assert time.monotonic() - begin >= 1
    assert out.startswith("137\nflux-start: 1 (pid ")
    assert out.endswith(
        " exited with rc=3\nflux-start: the instance ends in 1 s; with --test-exit-mode=leader it would continue\n"
    )


def test_a_follower_that_ends_well_or_is_started_again_ends_nothing(tmp_path: Path) -> None:
    # The followers end before the leader, which reads their pipe.
    pipe = tmp_path / "pipe"
    leader = f"mkfifo {pipe} 2>/dev/null; read word <{pipe}; exec sleep 2"
    follower = f"mkfifo {pipe} 2>/dev/null; echo ended >{pipe}"
    assert supervised(tmp_path, {}, 0.1, leader, follower) == "0\n"
    assert supervised(tmp_path, {}, 1, leader, "exit 3", again=follower).startswith("0\nflux-start: 1 (pid ")


@pytest.mark.parametrize(
    ("options", "programs", "result"),
    [
        # Followers outlive the leader.
        ({}, ("exit 4", NEVER), 4),
        ({"exit_timeout": 0.1}, ("exit 4", NEVER), 137),
        # A follower that ends last, with the largest code.
        ({"exit_timeout": 100.0}, ("exit 4", "exit 9"), 9),
        ({"exit_mode": "leader", "exit_timeout": 0.1}, ("exit 4", NEVER), 4),
        ({"exit_mode": "leader", "exit_timeout": 0.0}, ("exec sleep 1", "exit 9"), 0),
        ({"exit_mode": "any", "exit_timeout": 0.0}, (NEVER, "exit 9"), 137),
    ],
)
def test_the_result_is_the_largest_exit_code_or_the_leaders(
    options: dict[str, object], programs: tuple[str, ...], result: int, tmp_path: Path
) -> None:
    assert supervised(tmp_path, options, 100, *programs).startswith(f"{result}\n")
