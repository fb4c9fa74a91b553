"""Drains, targets and events of the inventory, and that a replay of the events gives the same state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker.answers import RpcError
from headrace.engine.modules.resource import source
from headrace.engine.modules.resource.inventory import Drain, Inventory, TargetError, ids
from headrace.formats.spec.rset import ResourceSet

HOSTS = ["node0", "node1", "node2", "node3"]


def inventory(hosts: list[str] | None = None) -> Inventory:
    made = Inventory(4, hosts or HOSTS)
    execution = {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}], "nodelist": [",".join(made.hostlist)]}
    made.define(ResourceSet.from_obj({"version": 1, "execution": execution}), "configuration", 2.0)
    made.set_online(0b1111, 3.0)
    return made


def test_the_eventlog_begins_as_recorded() -> None:
    made = Inventory(4, HOSTS)
    made.restart(1.0)
    made.define(ResourceSet(), "dynamic-discovery", 2.0)
    made.set_online(0b0001, 3.0)
    made.set_online(0b1011, 4.0)
    made.set_online(0b0011, 5.0)
    assert [(event["name"], event["context"]) for event in made.events] == [
        ("restart", {"ranks": "0-3", "online": "", "nodelist": "node[0-3]"}),
        ("resource-define", {"method": "dynamic-discovery"}),
        ("online", {"idset": "0"}),
        ("online", {"idset": "1,3"}),
        ("offline", {"idset": "3"}),
    ]


def test_a_drain_takes_ranks_out_and_says_why() -> None:
    made = inventory()
    event = made.drain(0b0010, "testing", "", 10.0)
    assert event == {
        "timestamp": 10.0,
        "name": "drain",
        "context": {"idset": "1", "nodelist": "node1", "reason": "testing", "overwrite": 0},
    }
    assert ids(made.usable()) == "0,2-3"
    assert made.status()["drain"] == {"1": {"timestamp": 10.0, "reason": "testing"}}
    made.undrain(0b0010, None, "", 11.0)
    assert ids(made.usable()) == "0-3"
    assert made.events[-1]["context"] == {"idset": "1", "nodelist": "node1", "overwrite": 0}


def test_a_torpid_node_gets_nothing_new_until_it_is_lively() -> None:
    made = inventory()
    assert [event["name"] for event in made.set_torpid(0b0110, 4.0)] == ["torpid"]
    assert ids(made.usable()) == "0,3"
    # Who is lost is not torpid any more, also when it comes back.
    made.set_online(0b1101, 5.0)
    made.set_online(0b1111, 6.0)
    assert ids(made.usable()) == "0-1,3"
    assert [event["name"] for event in made.set_torpid(0, 7.0)] == ["lively"]
    assert ids(made.usable()) == "0-3"


def test_ranks_drained_together_are_listed_together() -> None:
    made = inventory()
    made.drain(0b1100, "bad fan", "", 10.0)
    made.drain(0b0001, "other", "", 11.0)
    assert list(made.drain_table()) == ["0", "2-3"]


def test_draining_twice_needs_a_mode() -> None:
    made = inventory()
    made.drain(0b1100, "bad fan", "", 10.0)
    with pytest.raises(TargetError, match=r"^rank 3 already drained$"):
        made.drain(0b1000, "again", "", 11.0)
    with pytest.raises(TargetError, match=r"^ranks 2-3 already drained$"):
        made.drain(0b1110, "again", "", 11.0)
    assert made.drain(0b0100, "worse fan", "update", 12.0) is None
    assert made.drained[2] == Drain(10.0, "bad fan")
    made.drain(0b1000, "replaced", "overwrite", 13.0)
    assert made.drained[3] == Drain(10.0, "replaced")
    made.drain(0b1000, "anew", "force-overwrite", 14.0)
    assert made.drained[3] == Drain(14.0, "anew")
    with pytest.raises(TargetError, match="unknown drain mode 'maybe'"):
        made.drain(0b0001, "x", "maybe", 15.0)


def test_an_update_gives_a_reason_to_ranks_that_have_none() -> None:
    made = inventory()
    made.drain(0b0011, None, "", 10.0)
    made.drain(0b0110, "late reason", "update", 11.0)
    assert made.drained == {0: Drain(10.0, ""), 1: Drain(10.0, "late reason"), 2: Drain(11.0, "late reason")}


def test_undraining_what_is_not_drained_is_an_error_unless_forced() -> None:
    made = inventory()
    made.drain(0b0010, "x", "", 1.0)
    with pytest.raises(TargetError, match=r"^rank 2 not drained$"):
        made.undrain(0b0110, None, "", 2.0)
    assert 1 in made.drained
    made.undrain(0b0110, "fan replaced", "force", 2.0)
    assert not made.drained
    assert made.events[-1]["context"] == {
        "idset": "1",
        "nodelist": "node1",
        "reason": "fan replaced",
        "overwrite": 1,
    }
    with pytest.raises(TargetError, match="invalid undrain mode 'foo'"):
        made.undrain(0b0001, None, "foo", 3.0)


def test_a_reason_can_be_given_later_but_not_changed() -> None:
    made = inventory()
    made.drain(0b0010, None, "", 1.0)
    with pytest.raises(TargetError, match=r"^rank 1 already drained$"):
        made.drain(0b0010, None, "", 2.0)
    made.drain(0b0010, "fan", "", 2.0)
    assert made.drained[1] == (1.0, "fan")
    with pytest.raises(TargetError, match=r"^rank 1 already drained$"):
        made.drain(0b0011, "other", "", 3.0)


def test_what_is_excluded_cannot_be_drained() -> None:
    made = inventory()
    made.exclude = 0b0001
    made.drain(0b0010, "x", "", 1.0)
    for mode in ("", "overwrite", "force-overwrite"):
        with pytest.raises(TargetError, match="ranks 0-1 already drained or excluded"):
            made.drain(0b0011, "y", mode, 2.0)
    made.drain(0b0101, "y", "update", 2.0)
    assert sorted(made.drained) == [1, 2]


def test_targets_are_ranks_or_hosts() -> None:
    made = inventory(["vm", "vm", "other", "vm"])
    assert ids(made.targets("1-2")) == "1-2"
    assert ids(made.targets("vm")) == "0-1,3"
    assert ids(made.targets("other")) == "2"
    with pytest.raises(TargetError, match=r"^invalid hosts: nosuchhost$"):
        made.targets("nosuchhost")
    with pytest.raises(TargetError, match="out of range"):
        made.targets("4")
    with pytest.raises(TargetError, match="empty"):
        made.targets("")


def test_excluded_ranks_are_not_handed_out() -> None:
    made = inventory()
    made.exclude = 0b0001
    assert ids(made.usable()) == "1-3"
    assert str(made.schedulable().ranks) == "1-3"
    status = made.status()
    assert (status["exclude"], status["online"]) == ("0", "0-3")
    assert status["R"]["execution"]["R_lite"][0]["rank"] == "0-3"


def test_drains_survive_a_restart_and_follow_their_host() -> None:
    old = inventory()
    old.drain(0b0010, "disk", "", 10.0)
    new = Inventory(4, ["node1", "node0", "node2", "node3"])
    new.replay(old.events)
    assert new.drained == {0: Drain(10.0, "disk")}
    smaller = Inventory(1, ["node0"])
    smaller.replay(old.events)
    assert not smaller.drained


def test_hosts_of_one_name_keep_their_drains_by_rank() -> None:
    old = inventory(["vm"] * 4)
    old.drain(0b0100, "disk", "", 10.0)
    new = Inventory(4, ["vm"] * 4)
    new.replay(old.events)
    assert list(new.drained) == [2]


def test_drains_name_hosts_of_r_too() -> None:
    old = inventory(["a", "b", "c", "d"])
    old.drain(0b0100, "disk", "", 10.0)
    new = Inventory(4, ["fake0", "fake1", "fake2", "fake3"])
    new.rset = ResourceSet.from_config([{"hosts": "b,c,d,a", "cores": "0"}])
    new.replay(old.events)
    assert list(new.drained) == [1]


def test_a_host_has_the_ranks_that_r_says_and_no_others() -> None:
    made = Inventory(3, ["a", "b", "c"])
    made.rset = ResourceSet.from_config([{"hosts": "b,x", "cores": "0"}])
    assert [ids(made.targets(name)) for name in ("b", "x", "c")] == ["0", "1", "2"]
    # The broker on a is at a rank that R gives to b.
    with pytest.raises(TargetError, match=r"^invalid hosts: a$"):
        made.targets("a")


def test_a_drain_of_a_host_that_left_does_not_fall_on_another() -> None:
    old = inventory()
    old.drain(0b0110, "disk", "", 10.0)
    new = Inventory(3, ["node0", "node3", "node2"])
    new.replay(old.events)
    assert new.drained == {2: Drain(10.0, "disk")}


NAMES = [f"n{n}" for n in range(6)]


@given(st.permutations(NAMES), st.permutations(NAMES), st.integers(1, 6), st.integers(0, 5))
def test_every_look_up_of_a_host_is_by_the_host_list(
    brokers: list[str], order: list[str], size: int, seed: int
) -> None:
    """R names some hosts of the list, in any order; each operation finds each host where its broker is."""
    hosts = order[:size]
    made = Inventory(len(brokers), brokers)
    config = {"resource": {"config": [{"hosts": host, "cores": "0", "properties": [host]} for host in hosts]}}
    rset = source.configured(config, brokers, True)
    assert rset is not None
    made.define(rset, "configuration", 1.0)
    for host in brokers:
        rank = brokers.index(host)
        assert made.targets(host) == 1 << rank
        assert made.nodelist(1 << rank) == host
        has = [rank] if host in hosts else []
        assert list(rset.matching_ranks({"hostlist": [host]})) == has
        assert list(rset.matching_ranks({"properties": [host]})) == has
        assert rset.host(rank) == (host if has else "")
    drained = hosts[seed % size]
    made.drain(made.targets(drained), "why", "", 2.0)
    # A restart in which the hosts have other ranks, and further hosts are there.
    again = Inventory(len(brokers) + 1, ["new", *order])
    again.replay(made.events)
    assert list(again.drained) == [order.index(drained) + 1]


@given(st.permutations(NAMES), st.permutations(NAMES), st.integers(1, 5))
def test_resources_of_hosts_beyond_the_host_list_are_refused(brokers: list[str], order: list[str], size: int) -> None:
    config = {"resource": {"config": [{"hosts": ",".join(order), "cores": "0"}]}}
    with pytest.raises(RpcError) as refused:
        source.configured(config, brokers[:size], True)
    # Without a table [bootstrap], the resources may be of hosts that do not exist.
    made = source.configured(config, brokers[:size], False)
    assert made is not None
    assert made.hosts == order
    assert str(refused.value).startswith("resource.config: host")


def test_a_long_journal_is_cut_with_a_summary() -> None:
    made = inventory()
    made.drain(0b0001, "kept", "", 4.0)
    for turn in range(6000):
        made.set_online(0b0111, 5.0 + turn)
        made.set_online(0b1111, 5.5 + turn)
    assert len(made.events) < 10_001
    cut = made.events[0]
    assert cut["name"] == "truncate"
    assert cut["context"]["drain"] == {"0": {"timestamp": 4.0, "reason": "kept"}}


STEPS = st.lists(
    st.tuples(st.sampled_from(["drain", "undrain", "online"]), st.integers(1, 15), st.sampled_from(["", "why"])),
    max_size=20,
)


@given(STEPS)
def test_replayed_events_give_the_same_drains(steps: list[tuple[str, int, str]]) -> None:
    made = inventory()
    now = 10.0
    for what, ranks, reason in steps:
        now += 1
        if what == "drain":
            made.drain(ranks, reason, "overwrite", now)
        elif what == "undrain":
            made.undrain(ranks, None, "force", now)
        else:
            made.set_online(ranks, now)
    again = Inventory(4, HOSTS)
    again.replay(made.events)
    assert again.drained == made.drained


@given(st.text(max_size=12))
def test_any_text_is_targets_or_a_target_error(text: str) -> None:
    made: Any = inventory()
    try:
        assert 0 < made.targets(text) <= 15
    except TargetError:
        pass
