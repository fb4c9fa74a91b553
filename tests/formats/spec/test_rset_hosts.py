"""Host names of ranks: joining two tables, and the order that a host list asks for."""

from typing import List

import pytest

from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset_fields import RsetError
from headrace.formats.spec.rset_hosts import HostTable, joined, order_of, places_of, table_of


def table(*names: str) -> HostTable:
    return HostTable(dict(enumerate(names)))


def test_a_host_may_have_several_ranks() -> None:
    hosts = table("a", "b", "a")
    assert (hosts.bits("a"), hosts.bits("b"), hosts.bits("c")) == (0b101, 0b10, 0)


def test_as_many_names_as_ranks_are_needed() -> None:
    assert table_of(Idset.parse("3,7"), ["x", "y"], "hosts").names == {3: "x", 7: "y"}
    with pytest.raises(RsetError, match="nodelist: names 1 hosts, but the set has 2 ranks"):
        table_of(Idset.parse("3,7"), ["x"], "nodelist")


def test_a_table_that_has_all_the_names_is_used_as_it_is() -> None:
    large, small = table("a", "b", "c"), HostTable({1: "b"})
    assert joined(large, Idset.parse("0-2"), small, Idset.parse("1")) is large
    assert joined(small, Idset.parse("1"), large, Idset.parse("0-2")) is large


def test_names_of_both_are_joined_for_the_ranks_in_use() -> None:
    left, right = table("a", "b", "unused"), HostTable({1: "b", 5: "c"})
    assert joined(left, Idset.parse("0-1"), right, Idset.parse("1,5")).names == {0: "a", 1: "b", 5: "c"}


def test_two_names_for_one_rank_are_refused() -> None:
    with pytest.raises(RsetError, match="rank 0 is a in one set and b in the other"):
        joined(table("a"), Idset.parse("0"), table("b"), Idset.parse("0"))


def test_a_host_list_orders_ranks_and_keeps_the_order_of_those_on_one_host() -> None:
    assert order_of(["a", "b", "b"], table("b", "a", "b"), Idset.parse("0-2")) == {1: 0, 0: 1, 2: 2}


@pytest.mark.parametrize(
    ("hosts", "message"),
    [(["a"], "too few hosts"), (["a", "b", "c"], "too many hosts"), (["a", "z"], r"host z is not .* \([ab],[ab]\)")],
)
def test_a_host_list_must_be_that_of_the_set(hosts: List[str], message: str) -> None:
    with pytest.raises(RsetError, match=message):
        order_of(hosts, table("a", "b"), Idset.parse("0-1"))


def test_a_longer_host_list_gives_each_rank_the_place_of_its_host() -> None:
    assert places_of(["m", "b", "a"], table("a", "b"), Idset.parse("0-1")) == {0: 2, 1: 1}
    # A rank whose own place names its host stays there; others of the host take what is free.
    assert places_of(["vm"] * 3, table("vm", "vm"), Idset.parse("1")) == {1: 1}
    assert places_of(["b", "vm", "vm"], table("vm", "vm", "b"), Idset.parse("0-2")) == {0: 2, 1: 1, 2: 0}


def test_hosts_that_a_host_list_lacks_are_named() -> None:
    with pytest.raises(RsetError, match=r"^hosts c,a not found in a,b$"):
        places_of(["a", "b"], table("c", "a", "a"), Idset.parse("0-2"))
