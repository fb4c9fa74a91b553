"""The processes of an instance whose runner is gone are found by their workspace, and ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance import LIMIT, clean_env

from headrace.minicluster.run.remains import WORKSPACE, end_remains, processes_of
from waiting import until

# Ignores what can be ignored, and says so.
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(1000)"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for one in found:
        one.kill()
        one.communicate()


def test_all_processes_of_a_workspace_are_ended_and_no_others(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    work, other = tmp_path / "mini-a", tmp_path / "mini-ab"
    for folder in (work, other):
        folder.mkdir()
    for variables in ({WORKSPACE: work}, {"FLUX_URI": f"local://{work}/run/local-0"}, {WORKSPACE: other}):
        env = clean_env(**{name: str(value) for name, value in variables.items()})
        processes.append(subprocess.Popen(["sleep", "1000"], env=env))
    program, task, apart = processes
    until(lambda: sorted(processes_of(str(work))) == sorted([program.pid, task.pid]))
    assert end_remains(str(work)) == []
    assert (program.wait(LIMIT), task.wait(LIMIT), apart.poll()) == (-15, -15, None)
    assert [path.name for path in tmp_path.iterdir()] == ["mini-ab"]


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    env = clean_env(**{WORKSPACE: str(tmp_path / "mini-a")})
    one = subprocess.Popen([sys.executable, "-c", STUBBORN], env=env, stdout=subprocess.PIPE)
    processes.append(one)
    assert one.stdout is not None and one.stdout.readline() == b"\n"
    assert end_remains(str(tmp_path / "mini-a")) == []
    assert one.wait(LIMIT) == -9


PROGRAM = """
import os, signal, sys
from headrace.minicluster.run.remains import lifeline
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
