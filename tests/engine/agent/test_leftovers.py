"""Which processes are leftovers of a job: by descent and by the job path in their environment."""

from __future__ import annotations

import subprocess
import sys

_BEGIN = """
import os, signal, subprocess
from headrace.engine.agent import leftovers
from headrace.engine.process import linux
linux.become_subreaper()
def start(path, script="echo up; exec sleep 1000"):
    env = {"PATH": os.environ["PATH"], **({"FLUX_JOB_ID_PATH": path} if path else {})}
    child = subprocess.Popen(["sh", "-c", script], env=env, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout.readline() == b"up\\n"
    return child
def left(*children):
    print(*[child.poll() is None for child in children])
def settle(child):
    child.wait(60)
"""


def outcome(script: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", _BEGIN + script], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return ran.stdout.splitlines()


def test_a_job_is_killed_with_what_is_below_its_path_and_with_what_was_named() -> None:
    script = """
own, nested, other, named = start("/f1"), start("/f1/f2"), start("/f11"), start("")
leftovers.kill_job("/f1", signal.SIGKILL, [named.pid], os.getpid())
for child in (own, nested, named):
    settle(child)
left(own, nested, other, named)
other.kill()
"""
    assert outcome(script) == ["False False True False"]


def test_orphans_are_those_of_jobs_that_live_no_more() -> None:
    script = """
dead, live, known, foreign, outer = start("/f9/f1"), start("/f9/f2/f3"), start("/f9/f1"), start("/f8/f1"), start("/f9")
leftovers.kill_orphans(os.getpid(), [known.pid], "/f9", lambda: ["/f9/f2"], (0, 0))
settle(dead)
left(dead, live, known, foreign, outer)
for child in (live, known, foreign, outer):
    child.kill()
"""
    assert outcome(script) == ["False True True True True"]


def test_what_hides_whose_it_is_ends_with_the_jobs_that_ran_when_it_began() -> None:
    script = """
hidden = start("")
when = linux.began(hidden.pid)
assert abs(when - linux.ticks()) < 500
for between in ((when, when + 1), (when - 1, when), (0, 0)):
    leftovers.kill_orphans(os.getpid(), [], "", list, between)
    left(hidden)
leftovers.kill_orphans(os.getpid(), [], "", list, (when - 1, when + 1))
settle(hidden)
left(hidden)
"""
    assert outcome(script) == ["True", "True", "True", "False"]


def test_environments_of_users_whose_jobs_run_as_themselves_are_not_read() -> None:
    script = """
of_user, named = start("/f9/f1"), start("/f9/f1")
leftovers.users.add(os.getuid())
read = []
linux.environment_of = lambda pid: read.append(pid) or {"FLUX_JOB_ID_PATH": "/f9/f1"}
leftovers.kill_orphans(os.getpid(), [], "/f9", lambda: [], (0, 0))
leftovers.kill_job("/f9/f1", signal.SIGKILL, [named.pid], os.getpid())
settle(named)
left(of_user, named)
print(read)
of_user.kill()
"""
    assert outcome(script) == ["True False", "[]"]
