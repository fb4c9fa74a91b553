"""`--add-brokers`: the tasks, the task map and the configuration that extra brokers give a job."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.submit import extra_brokers
from headrace.engine.shell import layout
from headrace.formats.spec import jobspec_build


def args(add: int, nodes: int | None = None, nslots: int | None = None) -> Namespace:
    return Namespace(add_brokers=add, nodes=nodes, nslots=nslots)


@pytest.mark.parametrize(
    ("add", "nodes", "tasks"), [(2, 4, ["0-2", "3", "4", "5"]), (3, 1, ["0-3"]), (5, 2, ["0-5", "6"])]
)
def test_extra_brokers_are_on_the_first_node(add: int, nodes: int, tasks: list[str]) -> None:
    jobspec = jobspec_build.from_nest_command(["true"], nodes, num_nodes=nodes, exclusive=True)
    extra_brokers.place(args(add, nodes), jobspec)
    r = {"execution": {"R_lite": [{"rank": f"0-{nodes - 1}", "children": {"core": "0-3"}}]}}
    hosts = [f"n{node}" for node in range(nodes)]
    placed = [layout.lay_out(jobspec, r, hosts, node) for node in range(nodes)]
    assert [[str(rank) for rank in each.ranks] for each in placed] == [expand(text) for text in tasks]


def expand(text: str) -> list[str]:
    low, _, high = text.partition("-")
    return [str(rank) for rank in range(int(low), int(high or low) + 1)]


@pytest.mark.parametrize(
    ("conf", "exclude"), [({}, "1-2"), ({"resource": {"exclude": "5"}}, "5,1-2"), ({"resource": {}}, "1-2")]
)
def test_what_the_instance_schedules_is_without_their_ranks(conf: dict[str, Any], exclude: str) -> None:
    made = extra_brokers.exclude(args(2, 4), conf)
    assert made is not None
    assert made["resource"]["exclude"] == exclude


def test_one_rank_is_excluded_as_one_and_none_changes_nothing() -> None:
    assert extra_brokers.exclude(args(0, 4), None) is None
    assert extra_brokers.exclude(args(1, 4), None) == {"resource": {"exclude": "1"}}
    jobspec = jobspec_build.from_nest_command(["true"], 2, num_nodes=2, exclusive=True)
    before = repr(jobspec)
    extra_brokers.place(args(0, 2), jobspec)
    assert repr(jobspec) == before


@pytest.mark.parametrize(
    ("given", "text"), [(args(1, None, 4), "needs whole nodes"), (args(1, 2, 8), "needs"), (args(-1, 2), "0 or more")]
)
def test_it_needs_whole_nodes(given: Namespace, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        extra_brokers.check(given)
    extra_brokers.check(args(0, None, 4))
