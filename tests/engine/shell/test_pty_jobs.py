"""Jobs with terminals: they last until somebody has seen them, whatever comes first, and end at once when told to."""

from __future__ import annotations

import signal

import pytest
from agent_world import Job, World

INTERACTIVE = {"pty": {"interactive": 1}}
ENDED = ["attach", "data", "exit", None]


def attach(world: World, job: Job) -> int:
    return world.rpc(job, "pty", {"type": "attach"}, streaming=True)


def kinds(world: World, token: int) -> list[str | None]:
    """What a client was answered, pieces of output as one."""
    found = [reply["payload"] and reply["payload"]["type"] for reply in world.replies[token]]
    return [kind for at, kind in enumerate(found) if kind != "data" or found[at - 1] != "data"]


def seen(world: World, token: int) -> str:
    payloads = [reply["payload"] or {} for reply in world.replies[token]]
    return "".join(payload["data"] for payload in payloads if payload.get("type") == "data")


def turn(world: World, job: Job) -> None:
    """Until the agent has dealt with what happened so far."""
    asked = world.rpc(job, "proctable", {})
    world.pump(lambda: bool(world.replies[asked]))


def test_a_job_that_ended_waits_for_its_first_client_who_sees_all_of_it(world: World) -> None:
    job = world.start(["sh", "-c", "echo all; exit 3"], options=INTERACTIVE)
    world.pump(lambda: "shell.task-exit" in dict(job.events))
    turn(world, job)
    assert not job.done
    token = attach(world, job)
    assert world.finish(job).status == 3 << 8
    assert (kinds(world, token), seen(world, token)) == (ENDED, "all\r\n")
    assert world.replies[token][-1]["errnum"] == 61


def test_much_output_waits_as_well(world: World) -> None:
    job = world.start(["sh", "-c", "seq 1 100000; echo end"], options=INTERACTIVE)
    token = attach(world, job)
    world.finish(job)
    assert seen(world, token) == "".join(f"{n}\r\n" for n in range(1, 100001)) + "end\r\n"


def test_whenever_a_client_comes_it_sees_all(world: World) -> None:
    # As the task ends sometimes before and sometimes after it.
    for number in range(60):
        job = world.start(["sh", "-c", "echo all" if number % 3 else "sleep .01; echo all"], options=INTERACTIVE)
        if number % 2:
            turn(world, job)
        token = attach(world, job)
        assert world.finish(job).status == 0
        assert (kinds(world, token), seen(world, token)) == (ENDED, "all\r\n")


def test_who_was_there_and_left_is_not_waited_for(world: World) -> None:
    job = world.start(["sh", "-c", "read line"], options=INTERACTIVE)
    token = attach(world, job)
    world.pump(lambda: bool(world.replies[token]))
    world.rpc(job, "disconnect", {"sender": "a-client"})
    world.rpc(job, "pty", {"type": "data", "data": "\n"})
    assert world.finish(job).status == 0
    assert kinds(world, token) == ["attach"]


@pytest.mark.parametrize("script", ["echo all; exit 3", "trap 'exit 3' TERM; echo all; while :; do sleep .05; done"])
def test_a_job_that_is_told_to_end_waits_for_nobody(world: World, script: str) -> None:
    job = world.start(["sh", "-c", script], options={"pty": {"interactive": 1, "capture": 1}})
    world.pump(lambda: job.text() == "all\r\n")
    if "trap" not in script:
        # Still on its way to its end, it would end of the signal.
        world.pump(lambda: "shell.task-exit" in [name for name, _ in job.events])
    world.kill(job, signal.SIGCONT)
    turn(world, job)
    assert not job.done
    world.kill(job, signal.SIGTERM)
    assert world.finish(job).status == 3 << 8


def test_a_job_that_fails_waits_for_nobody(world: World) -> None:
    job = world.shell("[ $FLUX_TASK_RANK = 0 ] || exit 2", 2, options={**INTERACTIVE, "exit-on-error": 1})
    assert job.status == 2 << 8


def test_other_tasks_of_the_job_are_captured(world: World) -> None:
    options = {"pty": {"interactive": 1, "ranks": "all"}}
    job = world.start(["sh", "-c", "tty >/dev/null && echo $FLUX_TASK_RANK"], 3, nodes=[0, 1], options=options)
    token = attach(world, job)
    assert world.finish(job).status == 0
    assert (seen(world, token), sorted(job.text().split())) == ("0\r\n", ["1", "2"])


def test_a_first_task_on_another_node_can_be_attached_to_by_nobody_and_is_captured(world: World) -> None:
    options = {**INTERACTIVE, "taskmap": {"scheme": "manual", "value": "[[1,1,1,1],[0,1,1,1]]"}}
    job = world.shell("echo $FLUX_TASK_RANK", 2, nodes=[0, 1], options=options)
    assert (job.status, sorted(job.text().split()), "pty" in job.event("shell.init")) == (0, ["0", "1"], False)


def test_input_reaches_terminals_that_nobody_attaches_to(world: World) -> None:
    job = world.start(["sh", "-c", "stty -echo; echo up; cat"], 2, options={"pty": 1})
    world.pump(lambda: job.text() == "up\r\nup\r\n")
    for io in ({"data": "to all\n"}, {"data": "more"}, {"eof": True}):
        world.rpc(job, "stdin", {"stream": "stdin", "rank": "all", **io})
    assert world.finish(job).text(rank=1) == "up\r\nto all\r\nmore"
