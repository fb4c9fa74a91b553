"""When the module accounting is loaded, and which program it runs."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.module.context import RpcError
from headrace.engine.broker.module.host import names_for
from headrace.engine.modules.accounting import command

PLUGIN = {"plugins": [{"remove": "x"}, {"load": "/usr/lib/flux/mf_priority.so"}]}


@pytest.mark.parametrize(
    ("config", "loaded"),
    [
        ({}, False),
        ({"accounting": {}}, False),
        ({"accounting": {"factor-weights": {"fairshare": 1}}}, False),
        ({"accounting": {"interval": "60s"}}, True),
        ({"accounting": {"database": "/x"}}, True),
        ({"job-manager": {"plugins": [{"load": "other.so"}]}}, False),
        ({"job-manager": PLUGIN}, True),
        ({"job-manager": {"plugins": "mf_priority.so"}, "accounting": 1}, False),
        ({"job-manager": {"plugins": ["mf_priority.so"]}}, False),
    ],
)
def test_it_is_loaded_where_the_configuration_asks_for_it(config: dict[str, Any], loaded: bool) -> None:
    assert ("accounting" in names_for(0, AttrTable(), config)) is loaded
    assert "accounting" not in names_for(1, AttrTable(), config)


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ({}, []),
        ({"limits": "at-submit", "strict": True}, []),
        ({"database": "/x/a.db"}, ["--path=/x/a.db"]),
        (
            {"database": "postgresql://u@db/n", "password_file": "/x/p", "cluster": "north"},
            ["--path=postgresql://u@db/n", "--password-file=/x/p", "--cluster=north"],
        ),
        ({"interval": "2m"}, ["--interval=120.0"]),
        ({"interval": 0}, ["--interval=0.0"]),
        ({"count_running": True}, ["--count-running"]),
        ({"count_running": False}, []),
    ],
)
def test_settings_are_options_of_the_program(table: dict[str, Any], options: list[str]) -> None:
    assert command({"accounting": table}) == ["flux", "account-service", "--follow", *options]


@pytest.mark.parametrize("value", ["x", "", -1, float("inf"), float("nan"), 1e10])
def test_a_wrong_interval_is_named(value: Any) -> None:
    with pytest.raises(RpcError, match=r"accounting\.interval"):
        command({"accounting": {"interval": value}})
