"""What the job manager says to a scheduler and an exec service while answers of theirs are on their way."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from core_world import World as CoreWorld
from jobs_world import R, World

from headrace.engine.modules.job_manager.effects import Start
from headrace.engine.modules.job_manager.peers import Exec
from headrace.formats.spec import message as m

Run = Any


@pytest.mark.parametrize("first", ["request", "answer"])
@pytest.mark.parametrize("what", ["update", "hold", "cancel"])
def test_a_request_that_crosses_an_answer_of_the_scheduler_leaves_one_request_or_none(
    in_broker: Run, what: str, first: str
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        request = world.allocs.pop(id)
        before = list(world.asked)

        def change() -> None:
            if what == "update":
                body = {"id": id, "updates": {"attributes.system.duration": 60.0}}
                tags.append(world.client.start("job-manager.update", body))
            elif what == "hold":
                tags.append(world.client.start("job-manager.urgency", {"id": id, "urgency": 0}))
                tags.append(world.client.start("job-manager.urgency", {"id": id, "urgency": 16}))
            else:
                tags.append(world.client.start("job-manager.raise", {"id": id, "type": "cancel", "severity": 0}))

        tags: list[int] = []
        steps = [change, lambda: world.ctx.respond(request, {"id": id, "type": 0, "R": R})]
        for step in steps if first == "request" else reversed(steps):
            step()
        replies = [await world.client.next(tag) for tag in tags]
        await world.until(lambda: id in world.starts or id in world.freed or bool(world.kills))
        if first == "answer":
            # It runs: what can be changed then was changed, the rest was refused.
            assert world.asked == before and id in world.starts
            assert [reply.errnum for reply in replies] == ([22, 22] if what == "hold" else [0])
            return
        assert [reply.errnum for reply in replies] == [0] * len(tags)
        assert world.freed == [id] and id not in world.starts
        assert world.asked == (before if what == "cancel" else [*before, id])
        if what != "cancel":
            await world.run(id)
        assert (await world.events(id))[-1][0] == "clean"

    in_broker(scenario)


@pytest.mark.parametrize(("errnum", "level"), [(errno.ENOSYS, logging.DEBUG), (errno.EPROTO, logging.ERROR)])
def test_an_unloaded_scheduler_is_no_error_in_the_log(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch, errnum: int, level: int
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        logged: list[tuple[int, str, str]] = []
        monkeypatch.setattr(broker, "log", lambda *line: logged.append(line))
        world.ctx.respond_error(world.allocs.pop(id), errnum, "the scheduler does not answer")
        await world.until(lambda: bool(logged))
        assert logged == [(level, "job-manager", "sched.alloc: the scheduler does not answer")]

    in_broker(scenario)


def test_a_scheduler_that_answers_with_an_unknown_type_is_gone_until_it_says_hello(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.until(lambda: id in world.allocs)
        logged: list[tuple[int, str, str]] = []
        monkeypatch.setattr(broker, "log", lambda *line: logged.append(line))
        world.ctx.respond(world.allocs.pop(id), {"id": id, "type": 7})
        await world.until(lambda: bool(logged))
        assert logged == [(logging.ERROR, "job-manager", "sched.alloc: unknown type of response 7: must be 0 to 3")]

    in_broker(scenario)


class _Calls:
    """A module context that keeps what is called: (topic, body, on_reply)."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any, Any]] = []

    def call(self, topic: str, body: Any = None, on_reply: Any = None, streaming: bool = False) -> int:
        self.made.append((topic, body, on_reply))
        return len(self.made)

    def now(self) -> float:
        return 0.0

    def forget(self, tag: int) -> None:
        pass


def _exec() -> tuple[CoreWorld, _Calls, Exec]:
    """Job 1 is to start, and nobody was told of it yet."""
    world, calls = CoreWorld(), _Calls()
    world.core.exec_ready = False
    exec_ = Exec(calls, world.core, lambda: None)  # type: ignore[arg-type]
    _hello(exec_, "first")
    world.submit(1)
    world.alloc(1)
    return world, calls, exec_


def _hello(exec_: Exec, sender: str) -> None:
    exec_.hello(SimpleNamespace(sender=sender, obj={"service": "job-exec"}))  # type: ignore[arg-type]


def test_a_start_is_not_sent_that_was_given_up_while_it_waited_for_the_disk() -> None:
    world, calls, exec_ = _exec()
    job = world.core.active[1]
    exec_.disconnected("first")
    _hello(exec_, "second")
    exec_.start(job)
    assert calls.made == [] and 1 in world.core.inactive


def test_a_start_goes_once_to_the_exec_service_that_came_while_it_waited_for_the_disk() -> None:
    world, calls, exec_ = _exec()
    job = world.core.active[1]
    exec_.service = exec_.sender = ""
    world.core.exec_failed(1, "")
    _hello(exec_, "second")
    for _ in range(2):
        exec_.start(job)
    assert [topic for topic, _, _ in calls.made] == ["job-exec.start"]


def test_what_a_service_that_is_gone_refused_is_for_the_one_that_came_since() -> None:
    world, calls, exec_ = _exec()
    exec_.start(world.core.active[1])
    (_, _, answer) = calls.made[0]
    exec_.service = exec_.sender = ""
    _hello(exec_, "second")
    world.flush()
    world.effects.clear()
    answer(m.error_response(m.request("job-exec.start", None), 38, ""))
    world.flush()
    assert exec_.service == "job-exec" and world.core.exec_ready
    assert [effect.job.id for effect in world.effects if isinstance(effect, Start)] == [1]
