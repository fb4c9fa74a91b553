"""Checks of guests: their size is known before they are made, and the owner's come first."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from sched_world import World, jobspec

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.sched import service as sched_graph
from headrace.engine.modules.sched import simple as sched_simple
from headrace.engine.modules.sched.guest_checks import (
    MOST_BYTES,
    MOST_CHECKS,
    MOST_SECONDS,
    MOST_SIZE,
    GuestChecks,
    of_request,
)
from headrace.formats.spec.message import Message, request
from waiting import until_in_loop

Run = Callable[..., None]


@pytest.mark.parametrize("module", [sched_graph, sched_simple])
@pytest.mark.parametrize(
    ("constraint", "error", "said"),
    [
        ({"properties": ["no"]}, errno.EINVAL, ""),
        ({"ranks": ["0-16000000"]}, 0, ""),
        ({"or": [{"ranks": [f"{low}-16000000"]} for low in range(900)]}, 0, ""),
        ({"or": [{"ranks": ["0-16000000"]}] * 3000}, errno.E2BIG, f"those of a guest may have {MOST_BYTES}"),
        (
            {"hostlist": ["h[0-1000000]"]},
            errno.E2BIG,
            f"operators, values and hosts, those of a guest may have {MOST_SIZE}",
        ),
        ({"hostlist": [7]}, errno.EINVAL, "must be a host list string"),
        ([], 0, ""),
    ],
)
def test_a_guests_check_is_answered_at_little_cost(
    in_broker: Run, module: Any, constraint: Any, error: int, said: str
) -> None:
    async def scenario(broker: Any) -> None:
        World(broker, module=module)
        await asyncio.sleep(0)
        body = {"jobspec": jobspec(constraints=constraint)}
        begin = time.process_time()
        reply = await broker.client(guest=True).call("feasibility.check", body)
        assert (reply.errnum, said in reply.text) == (error, True), reply.text
        assert time.process_time() - begin < 1.0

    in_broker(scenario)


def test_what_is_malformed_is_said_by_the_check_itself(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        World(broker)
        guest = broker.client(guest=True)
        for body, error in (({"jobspec": {"attributes": 7}}, errno.EINVAL), ({"jobspec": "no"}, errno.EPROTO)):
            assert (await guest.call("feasibility.check", body)).errnum == error

    in_broker(scenario)


class Slow:
    """A check that takes a moment, of a scheduler that may be busy."""

    def __init__(self, broker: Any) -> None:
        self.order: list[str] = []
        self.busy = False
        self.ctx = broker.context("checks")
        self.checks = GuestChecks(self.ctx, self._check, lambda: self.busy, apart=False)
        self.ctx.service("checks", {"check": self.checks}, open=("check",))

    def _check(self, msg: Message) -> dict[str, Any]:
        self.order.append(msg.obj["name"])
        return {"name": msg.obj["name"]}


def test_the_owner_does_not_wait_behind_guests_and_jobs_come_before_them(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        slow = Slow(broker)
        owner, guest = broker.client(), broker.client(guest=True)
        slow.busy = True
        tags = [guest.start("checks.check", {"name": f"guest {number}", "jobspec": {}}) for number in range(3)]
        assert await owner.rpc("checks.check", {"name": "owner"}) == {"name": "owner"}
        assert slow.order == ["owner"]
        slow.busy = False
        assert [(await guest.next(tag)).obj["name"] for tag in tags] == ["guest 0", "guest 1", "guest 2"]

    in_broker(scenario)


def test_a_guest_has_a_limited_number_of_checks_under_way(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        slow = Slow(broker)
        slow.busy = True
        guest = broker.client(guest=True)
        tags = [guest.start("checks.check", {"name": "x", "jobspec": {}}) for _ in range(MOST_CHECKS)]
        await until_in_loop(lambda: len(slow.checks._waiting) == MOST_CHECKS)
        refused = await guest.call("checks.check", {"name": "x", "jobspec": {}})
        text = f"user {guest.userid} may have {MOST_CHECKS} feasibility checks under way: wait"
        assert (refused.errnum, refused.text) == (errno.EAGAIN, f"{text} for the answer to one of them")
        asked = [msg for msg, _answer in slow.checks._waiting]
        slow.busy = False
        assert [(await guest.next(tag)).errnum for tag in tags] == [0] * MOST_CHECKS
        assert not any(msg.has_payload for msg in asked)
        assert (await guest.call("checks.check", {"name": "x", "jobspec": {}})).errnum == 0

    in_broker(scenario)


def test_checks_of_a_guest_that_left_are_not_made(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        slow = Slow(broker)
        slow.busy = True
        gone, stays = broker.client(guest=True), broker.client(guest=True)
        gone.start("checks.check", {"name": "gone", "jobspec": {}})
        tag = stays.start("checks.check", {"name": "stays", "jobspec": {}})
        await until_in_loop(lambda: len(slow.checks._waiting) == 2)
        gone.disconnect("checks")
        await until_in_loop(lambda: len(slow.checks._waiting) == 1)
        slow.busy = False
        await stays.next(tag)
        assert slow.order == ["stays"]

    in_broker(scenario)


def in_fork(check: Callable[[Message], Any]) -> Callable[[Any], Any]:
    """A scenario: the error with which a guest's check in a fork is answered."""

    async def scenario(broker: Any) -> tuple[int, str]:
        ctx = broker.context("checks")
        ctx.service("checks", {"check": GuestChecks(ctx, check, lambda: False, apart=True)}, open=("check",))
        reply = await broker.client(guest=True).call("checks.check", {"jobspec": {}})
        assert await broker.client(guest=True).call("checks.ping", {})
        return reply.errnum, reply.text

    return scenario


def _no(_msg: Message) -> None:
    raise RpcError(errno.EINVAL, "x" * 100_000)


def _without_end(_msg: Message) -> None:
    while True:
        pass


def _without_bounds(_msg: Message) -> None:
    bytes(1 << 30)


def _wrong(_msg: Message) -> None:
    raise LookupError


@pytest.mark.parametrize(
    ("check", "errnum", "said"),
    [
        (lambda _msg: EMPTY, 0, ""),
        (_no, errno.EINVAL, "xxx"),
        (_without_end, errno.E2BIG, "ended after 2 s of processor time"),
        (_without_bounds, errno.E2BIG, "more than 64 MiB of memory"),
        (_wrong, errno.EAGAIN, "the check was ended"),
    ],
)
def test_a_check_in_a_fork_has_an_end(in_broker: Run, check: Any, errnum: int, said: str) -> None:
    async def scenario(broker: Any) -> None:
        found, text = await in_fork(check)(broker)
        assert (found, said in text) == (errnum, True), text

    in_broker(scenario)


def test_a_fork_whose_guest_left_is_ended_and_the_next_has_its_turn(in_broker: Run) -> None:
    def check(msg: Message) -> Any:
        return _without_end(msg) if msg.obj["name"] == "long" else EMPTY

    async def scenario(broker: Any) -> None:
        ctx = broker.context("checks")
        checks = GuestChecks(ctx, check, lambda: False, apart=True)
        ctx.service("checks", {"check": checks}, open=("check",))
        gone, stays = broker.client(guest=True), broker.client(guest=True)
        gone.start("checks.check", {"name": "long", "jobspec": {}})
        await until_in_loop(lambda: checks._pid)
        begin = os.times().children_user
        tag = stays.start("checks.check", {"name": "short", "jobspec": {}})
        gone.disconnect("checks")
        assert (await stays.next(tag)).errnum == 0
        assert os.times().children_user - begin < MOST_SECONDS

    in_broker(scenario)


SPEC: dict[str, Any] = {"version": 1, "resources": []}


@pytest.mark.parametrize("jobspec", [SPEC, json.dumps(SPEC)])
def test_an_object_and_its_text_are_the_same(jobspec: Any) -> None:
    assert of_request(request("feasibility.check", {"jobspec": jobspec})) == SPEC


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(RpcError, match=r"^feasibility\.check: jobspec: ") as refused:
        of_request(request("feasibility.check", {"jobspec": text}))
    assert refused.value.errnum == errno.EPROTO
