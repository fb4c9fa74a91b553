"""`-o nosetpgrp`: the tasks of a job share a process group, which ends with the last of them."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest
from agent_world import World

_PATIENCE = 60.0

_GROUP = "ps -o pgid= -p $$; echo $$"


@pytest.mark.parametrize(("options", "groups"), [({}, 3), ({"nosetpgrp": 1}, 1)])
def test_tasks_share_a_group_only_when_asked_to(world: World, options: dict[str, int], groups: int) -> None:
    job = world.shell(_GROUP, 3, options=options)
    assert job.status == 0
    told = [job.text(rank=rank).split() for rank in range(3)]
    seen = {group for group, _pid in told}
    assert len(seen) == groups and str(os.getpgrp()) not in seen
    # No task leads a shared group.
    assert [group == pid for group, pid in told] == [groups == 3] * 3


def test_each_job_has_a_group_of_its_own(world: World) -> None:
    """A task that signals its group (`kill 0`) reaches no other job of the node."""
    first = world.start(["sh", "-c", "echo up; sleep 60"], 2, options={"nosetpgrp": 1})
    world.pump(lambda: first.text().count("up") == 2)
    killer = world.shell("kill -9 0", 2, options={"nosetpgrp": 1})
    assert killer.status == 137 << 8
    assert not first.done
    world.kill(first, signal.SIGKILL)
    assert world.finish(first).status == 137 << 8


def test_a_signal_goes_to_the_tasks_and_not_to_their_children(world: World) -> None:
    child = "trap 'echo child got it' USR1; echo up; while :; do sleep .01; done"
    task = "trap 'echo task got it; kill -9 $child; exit 0' USR1"
    script = f'{task}; sh -c "$CHILD" & child=$!; echo knows; while :; do wait; done'
    job = world.start(["sh", "-c", script], 2, options={"nosetpgrp": 1}, env={"CHILD": child})
    world.pump(lambda: job.text().count("up") == job.text().count("knows") == 2)
    world.kill(job, signal.SIGUSR1)
    assert world.finish(job).status == 0
    assert (job.text().count("task got it"), job.text().count("child got it")) == (2, 0)


def test_what_a_task_left_in_the_group_lives_until_the_last_task_ends(world: World, tmp_path: Path) -> None:
    left = f"sleep 60 </dev/null >/dev/null 2>&1 & echo $! >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid"
    wait = f"until [ -e {tmp_path}/end ]; do sleep .01; done"
    script = f"if [ $FLUX_TASK_RANK = 0 ]; then {left}; else {wait}; fi"
    job = world.start(["sh", "-c", script], 2, options={"nosetpgrp": 1})
    world.pump(lambda: "shell.task-exit" in dict(job.events))
    left_behind = os.pidfd_open(int((tmp_path / "pid").read_text()))
    try:
        assert not select.select([left_behind], [], [], 0)[0]
        (tmp_path / "end").touch()
        assert world.finish(job).status == 0
        assert select.select([left_behind], [], [], _PATIENCE)[0], "it outlived its job"
    finally:
        os.close(left_behind)
