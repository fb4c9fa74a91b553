"""Signals that would end an agent, and whose job pays. Each case is a process that plays the agent."""

from __future__ import annotations

import signal
import subprocess
import sys

_BEGIN = """
import os, select, signal, sys, time
from types import SimpleNamespace
from headrace.engine.agent import fatal_signals
def job(path, *pids):
    tasks = SimpleNamespace(all=[SimpleNamespace(pid=pid) for pid in pids])
    return SimpleNamespace(path=path, tasks=tasks, shell_killed=lambda signum: print(path, signum, flush=True))
def child(ends):
    pid = os.fork()
    if not pid:
        os.kill(os.getppid(), signal.SIGQUIT)
        ends or time.sleep(60)
        os._exit(0)
    ends and os.waitpid(pid, 0)
    return pid
def take(*jobs):
    select.select([fd], [], [], 60)
    fatal_signals.take(fd, dict(enumerate(jobs)))
fd = fatal_signals.listen()
"""


def outcome(script: str) -> tuple[int, str, str]:
    """Exit status and what was written of a process that runs `script` as the agent."""
    ran = subprocess.run(
        [sys.executable, "-c", _BEGIN + script], check=False, capture_output=True, text=True, timeout=60
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_the_job_pays_whose_task_has_sent_the_signal() -> None:
    script = """
task, other = child(False), os.fork()
if not other:
    time.sleep(60)
take(job("/a", other), job("/b", task, -1))
for pid in (task, other):
    os.kill(pid, signal.SIGKILL)
"""
    assert outcome(script) == (0, "/b 3\n", "")


def test_one_that_left_its_task_is_known_by_its_environment() -> None:
    # The signal is often taken in the middle of the exec, where the sender has no environment.
    script = """
argv = ["sh", "-c", "kill -QUIT $PPID; exec sleep 60"]
pid = os.posix_spawnp("sh", argv, {**os.environ, "FLUX_JOB_ID_PATH": "/b/nested"}, setsigmask=())
take(job("/a"), job("/b"))
os.kill(pid, signal.SIGKILL)
"""
    assert outcome(script) == (0, "/b 3\n", "")


def test_where_the_sender_is_gone_the_only_job_pays_and_none_of_several() -> None:
    script = """
sender = child(True)
take(job("/a"))
sender = child(True)
take(job("/a"), job("/b"))
print(sender)
"""
    code, out, err = outcome(script)
    first, sender = out.split("\n")[:2]
    assert (code, first) == (0, "/a 3")
    assert err == f"flux-agent: ignoring Quit of process {sender}, which is gone\n"


def test_an_agent_ends_by_a_signal_of_somebody_elses() -> None:
    script = "print('up', flush=True)\ntake(job('/a'))\nprint('survived')"
    with subprocess.Popen([sys.executable, "-c", _BEGIN + script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "up\n"
        agent.send_signal(signal.SIGQUIT)
        assert agent.communicate(timeout=60)[0] == ""
        assert agent.returncode == -signal.SIGQUIT
