"""Groups of brokers: joined, left, watched, gathered, and bounded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.broker.services import groups
from headrace.formats.spec import message as m

Run = Callable[..., None]


def test_who_watches_a_group_sees_each_change_of_it_and_of_no_other(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        guest, owner = broker.guest(), broker.owner_peer()
        await guest.ask("groups.get", {"name": "g"}, m.FLAG_STREAMING)
        await owner.ask("groups.join", {"name": "g"}, tag=1)
        await owner.ask("groups.join", {"name": "other"}, tag=3)
        await owner.ask("groups.update", {"update": {"g": {"add": "0-3", "remove": "2"}}}, tag=4)
        await owner.ask("groups.leave", {"name": "g"}, tag=5)
        await owner.ask("groups.leave", {"name": "other"}, tag=7)
        service.lost([1, 3])
        await owner.ask("groups.get", {"name": "g"}, tag=6)
        assert [reply.obj["members"] for reply in guest.got] == ["", "0", "0-1,3", "1,3", ""]
        assert service.members == {}

    in_broker(scenario)


@pytest.mark.parametrize(
    ("method", "body", "number"),
    [
        ("join", {}, errno.EPROTO),
        ("join", {"name": ""}, errno.EPROTO),
        ("join", {"name": 5}, errno.EPROTO),
        ("leave", {"name": "g"}, errno.ENOENT),
        ("update", {}, errno.EPROTO),
        ("get", {}, errno.EPROTO),
        ("update", {"update": {"g": {"add": "x"}}}, errno.EPROTO),
        ("update", {"update": {"g": 5}}, errno.EPROTO),
        ("update", {"update": {"g": {"add": "1-900"}}}, errno.EINVAL),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    in_broker: Run, method: str, body: dict[str, Any], number: int
) -> None:
    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        assert (await broker.owner_peer().ask(f"groups.{method}", body))[0].errnum == number
        assert service.members == {}

    in_broker(scenario)


def test_a_guest_looks_on(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        groups.Groups(broker.context("groups")).change("g", [1])
        guest = broker.guest()
        assert (await guest.ask("groups.get", {"name": "g"}))[0].obj == {"members": "1"}
        assert (await guest.ask("groups.join", {"name": "g"}, tag=2))[0].errnum == errno.EPERM

    in_broker(scenario)


def test_nobody_fills_the_memory_with_groups(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MOST", 2)

    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        peer = broker.owner_peer()
        for tag, name in enumerate("abc", 1):
            replies = await peer.ask("groups.join", {"name": name}, tag=tag)
        assert replies[0].errnum == errno.ENOSPC
        assert sorted(service.members) == ["a", "b"]

    in_broker(scenario)


def test_a_broker_is_in_a_group_while_somebody_there_is(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        groups.Groups(broker.context("groups"))
        one, two = broker.owner_peer("one"), broker.owner_peer("two")
        told = []

        async def answer() -> None:
            await broker.settle()
            told.extend(msg.obj["update"] for msg in broker.up)
            for msg in broker.up:
                broker.router.response(m.response(msg, {}))
            broker.up.clear()
            await broker.settle()

        await one.ask("groups.join", {"name": "g"})
        await answer()
        assert (await one.ask("groups.join", {"name": "g"}, tag=2))[0].errnum == errno.EEXIST
        await two.ask("groups.join", {"name": "g"}, tag=1)
        await one.ask("groups.leave", {"name": "g"}, tag=3)
        assert (await one.ask("groups.leave", {"name": "g"}, tag=4))[0].errnum == errno.ENOENT
        await answer()
        assert told == [{"g": {"add": "2"}}]
        await two.ask("groups.disconnect", None, tag=2)
        await answer()
        assert told[1:] == [{"g": {"remove": "2"}}]
        reply = (await one.ask("groups.get", {"name": "g"}, tag=9))[0]
        assert (reply.errnum, "only available on rank 0" in reply.text) == (errno.EPROTO, True)

    in_broker(scenario, rank=2)


def test_a_member_joins_at_its_own_broker(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        for method in ("join", "leave"):
            elsewhere = m.request(f"groups.{method}", {"name": "g"}, matchtag=1)
            elsewhere.routes = ["client of rank 3", "rank 3"]
            with pytest.raises(RpcError, match="restricted to the local broker"):
                await getattr(service, f"_{method}")(elsewhere)
        assert service.members == {}

    in_broker(scenario)


def test_statistics_name_the_torpid_even_if_there_are_none(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        service.change("g", [0])
        (stats,) = await broker.owner_peer().ask("groups.stats-get")
        assert stats.obj["subtree"] == {"broker.torpid": "", "g": "0"}

    in_broker(scenario)
