"""The `[exec]` table and the arguments of job-exec."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.job_exec.settings import Settings


def test_arguments_go_before_the_configuration_and_that_before_what_is_usual() -> None:
    config = {"exec": {"kill-timeout": "1m", "term-signal": "SIGINT"}}
    assert Settings({}, []).stats() == {
        "kill-timeout": 5.0,
        "max-kill-count": 8,
        "max-kill-timeout": 0.0,
        "term-signal": "SIGTERM",
        "kill-signal": "SIGKILL",
    }
    assert Settings(
        config, ["term-signal=10", "max-kill-count=3", "max-kill-timeout=30m", "service=rexec"]
    ).stats() == {
        "kill-timeout": 60.0,
        "max-kill-count": 3,
        "max-kill-timeout": 1800.0,
        "term-signal": "SIGUSR1",
        "kill-signal": "SIGKILL",
    }
    assert Settings(config, ["kill-timeout=0.5s", "kill-signal=USR2"]).kill_timeout == 0.5


@pytest.mark.parametrize(
    ("config", "args", "named"),
    [
        ({"exec": 1}, [], "exec"),
        ({"exec": {"kill-timeout": "soon"}}, [], "invalid kill-timeout: "),
        ({"exec": {"kill-timeout": 0}}, [], "invalid kill-timeout: "),
        ({}, ["kill-timeout="], "invalid kill-timeout: "),
        ({}, ["kill-signal=SIGNONE"], "invalid kill-signal: SIGNONE"),
        ({"exec": {"term-signal": 65}}, [], "invalid term-signal: 65"),
        ({}, ["max-kill-timeout=0"], "invalid max-kill-timeout: "),
        ({}, ["max-kill-count=0"], "invalid max-kill-count: 0"),
    ],
)
def test_what_is_wrong_is_named(config: dict[str, Any], args: list[str], named: str) -> None:
    with pytest.raises(RpcError) as refused:
        Settings(config, args)
    assert named in str(refused.value)


def test_a_signal_without_a_name_is_shown_by_its_number() -> None:
    assert Settings({"exec": {"term-signal": 40}}, []).stats()["term-signal"] == "40"
