"""Variables of which each node has its own value: a task has those of its node, unless its submitter set others."""

from __future__ import annotations

import pytest

from headrace.engine.shell.node_variables import VARIABLE, exchange, listed


def node(**own: str) -> dict[str, str]:
    """The environment of a node with these variables of its own."""
    return {**own, "SAME": "s", **listed(own, [*own, "ABSENT"])}


def exchanged(job: dict[str, str], its: dict[str, str]) -> dict[str, str]:
    found = dict(job)
    exchange(found, its)
    return found


def test_a_task_has_the_variables_of_its_node() -> None:
    first, second = node(INDEX="0", IP="10.0.0.1"), node(INDEX="1", IP="10.0.0.2")
    assert exchanged({**first, "USERS": "0"}, second) == {**second, "USERS": "0"}


def test_what_the_submitter_has_set_or_removed_stays() -> None:
    first, second = node(INDEX="0", IP="10.0.0.1"), node(INDEX="1", IP="10.0.0.2")
    del first["IP"]
    found = exchanged({**first, "INDEX": "7"}, second)
    assert (found["INDEX"], "IP" in found) == ("7", False)


def test_a_variable_that_the_node_lacks_is_left_out() -> None:
    assert "IP" not in exchanged(node(INDEX="0", IP="10.0.0.1"), node(INDEX="1"))


def test_a_job_of_a_job_has_the_variables_of_its_node_too() -> None:
    first, second, third = (node(INDEX=str(index)) for index in range(3))
    assert exchanged(exchanged(first, second), third)["INDEX"] == "2"


@pytest.mark.parametrize("text", ["", "no list", "[]", '{"INDEX": 0}', "[" * 100_000])
def test_without_a_list_all_are_the_nodes(text: str) -> None:
    job, its = {"INDEX": "0", VARIABLE: text}, node(INDEX="1", IP="10.0.0.2")
    assert exchanged(job, its) == {"INDEX": "1", VARIABLE: its[VARIABLE]}


@pytest.mark.parametrize("text", ["", "no list"])
def test_a_node_without_a_list_changes_nothing(text: str) -> None:
    first = node(INDEX="0")
    assert exchanged(first, {"INDEX": "1", VARIABLE: text}) == first
    assert listed({"A": "b"}, ["C"]) == {}
