"""Groups of brokers: joined, left, watched, gathered, and bounded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker import groups
from headrace.spec import message as m

Run = Callable[..., None]


def test_who_watches_a_group_sees_each_change_of_it_and_of_no_other(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        guest, owner = broker.guest(), broker.owner_peer()
        await guest.ask("groups.get", {"name": "g"}, m.FLAG_STREAMING)
        await owner.ask("groups.join", {"name": "g", "rank": 2})
        await owner.ask("groups.join", {"name": "g", "rank": 2}, tag=2)
        await owner.ask("groups.join", {"name": "other", "rank": 1}, tag=3)
        await owner.ask("groups.update", {"update": {"g": {"add": "0-3", "remove": "2"}}}, tag=4)
        await owner.ask("groups.leave", {"name": "g", "rank": 0}, tag=5)
        service.lost([1, 3])
        await owner.ask("groups.get", {"name": "g"}, tag=6)
        assert [reply.obj["members"] for reply in guest.got] == ["", "2", "0-1,3", "1,3", ""]
        assert service.members == {}

    in_broker(scenario)


@pytest.mark.parametrize(
    ("method", "body", "number"),
    [
        ("join", {}, errno.EPROTO),
        ("join", {"name": ""}, errno.EPROTO),
        ("join", {"name": "g", "rank": "1"}, errno.EPROTO),
        ("join", {"name": "g", "rank": 4}, errno.EINVAL),
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
        assert (await guest.ask("groups.join", {"name": "g", "rank": 0}, tag=2))[0].errnum == errno.EPERM

    in_broker(scenario)


def test_nobody_fills_the_memory_with_groups(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MOST", 2)

    async def scenario(broker: Any) -> None:
        service = groups.Groups(broker.context("groups"))
        peer = broker.owner_peer()
        for tag, name in enumerate("abc", 1):
            replies = await peer.ask("groups.join", {"name": name, "rank": 0}, tag=tag)
        assert replies[0].errnum == errno.ENOSPC
        assert sorted(service.members) == ["a", "b"]

    in_broker(scenario)
