"""What is pushed to run after the initial program."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.broker.services.runat import Cleanup

Run = Callable[..., None]


def test_every_command_runs_the_last_pushed_first_and_the_first_failure_counts(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        broker.attrs.set("local-uri", "local:///run/local-0")
        broker.env, broker.agent = dict(os.environ), None
        cleanup = Cleanup(broker, broker.context("broker"))
        say = f">>{tmp_path}/said"
        for tag, commands in enumerate(([f"echo a {say}; exit 3"], [f"echo b {say}", f"echo c {say}; exit 4"]), 1):
            body = {"name": "cleanup", "commands": commands}
            assert (await broker.owner_peer().ask("runat.push", body, tag=tag))[0].errnum == 0
        assert await cleanup.run(None) == 4
        assert (tmp_path / "said").read_text() == "c\nb\na\n"
        assert broker.program is None

    in_broker(scenario)


@pytest.mark.parametrize(
    ("rank", "body", "number"),
    [
        (0, {}, errno.EPROTO),
        (0, {"name": "cleanup", "commands": [1]}, errno.EPROTO),
        (0, {"name": "cleanup", "commands": []}, errno.EPROTO),
        (0, {"name": "cleanup", "commands": ["true", " "]}, errno.EINVAL),
        (0, {"name": "rc3", "commands": ["true"]}, errno.EINVAL),
        (1, {"name": "cleanup", "commands": ["true"]}, errno.EINVAL),
    ],
)
def test_what_cannot_be_run_is_refused(in_broker: Run, rank: int, body: dict[str, Any], number: int) -> None:
    async def scenario(broker: Any) -> None:
        cleanup = Cleanup(broker, broker.context("broker"))
        assert (await broker.owner_peer().ask("runat.push", body))[0].errnum == number
        good = {"name": "cleanup", "commands": ["true"]}
        assert (await broker.guest().ask("runat.push", good))[0].errnum == errno.EPERM
        assert cleanup.commands == []

    in_broker(scenario, rank=rank)


def test_nothing_can_be_pushed_once_it_has_begun(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        broker.past = lambda state: state == "run"
        Cleanup(broker, broker.context("broker"))
        reply = (await broker.owner_peer().ask("runat.push", {"name": "cleanup", "commands": ["true"]}))[0]
        assert (reply.errnum, reply.text) == (errno.EINVAL, "runat.push: cleanup has begun")

    in_broker(scenario)
