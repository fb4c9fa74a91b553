"""Private mode: who sees the jobs of others, and the statistics of modules that tell of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.module.privacy import is_hidden, refuse_if_hidden
from headrace.formats.spec import message as m

Run = Callable[..., None]
PRIVATE = {"access": {"private-mode": True}}


class Config:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config


@pytest.mark.parametrize(
    ("config", "rolemask", "userid", "hidden"),
    [
        (PRIVATE, m.ROLE_USER, None, True),
        (PRIVATE, m.ROLE_USER, 8, True),
        (PRIVATE, m.ROLE_USER, 7, False),
        (PRIVATE, m.ROLE_USER | m.ROLE_ADMIN, None, False),
        (PRIVATE, m.ROLE_OWNER, None, False),
        ({"access": {"private-mode": False}}, m.ROLE_USER, None, False),
        ({"access": "wrong"}, m.ROLE_USER, None, False),
        ({}, m.ROLE_USER, 8, False),
    ],
)
def test_jobs_of_others_are_hidden(config: dict[str, Any], rolemask: int, userid: int | None, hidden: bool) -> None:
    msg = m.request("x.y", matchtag=1, userid=7, rolemask=rolemask)
    assert is_hidden(Config(config), msg, userid) is hidden
    if hidden and userid is None:
        with pytest.raises(RpcError):
            refuse_if_hidden(Config(config), msg)


def test_the_statistics_of_every_module_are_refused_to_guests(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        plain, own = broker.context("plain"), broker.context("own")
        plain.service("plain", {})
        own.service("own", {"stats-get": lambda _msg: {"jobs": 3}}, open=("stats-get",))
        for config, codes in ((PRIVATE, [errno.EPERM, errno.EPERM, 0, 0]), ({}, [0, 0, 0, 0])):
            broker.config = config
            guest, owner = broker.guest(f"guest{codes}"), broker.owner_peer(f"owner{codes}")
            found = []
            for tag, peer in ((1, guest), (3, owner)):
                for number, service in enumerate(("plain", "own")):
                    found.append((await peer.ask(f"{service}.stats-get", {}, tag=tag + number))[0].errnum)
            assert found == codes

    in_broker(scenario)
