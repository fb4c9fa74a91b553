"""Attributes that a broker sets itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.boot.boot import on_one_machine
from headrace.engine.broker.own_attrs import set_own
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.topology import Topology


def broker(rank: int, size: int, **given: str) -> Any:
    attrs = AttrTable()
    for name, value in {"rundir": "/run/x", **{key.replace("_", "."): value for key, value in given.items()}}.items():
        attrs.set(name, value)
    logged: list[str] = []

    class Log:
        rank = -1

        def __call__(self, _level: int, _name: str, text: str) -> None:
            logged.append(text)

    boot = on_one_machine(size, "/run/x", Topology(size, "kary:2"), [f"host{each}" for each in range(size)])[rank]
    return SimpleNamespace(
        rank=rank,
        size=size,
        attrs=attrs,
        boot=boot,
        owner=7,
        uuid="u",
        log=Log(),
        critical_ranks=Idset(),
        logged=logged,
    )


def test_a_broker_knows_its_place_in_the_tree() -> None:
    one = broker(1, 6)
    set_own(one)
    names = ("rank", "size", "tbon.level", "tbon.maxlevel", "tbon.descendants", "broker.quorum", "local-uri")
    assert [one.attrs.get(name) for name in names] == ["1", "6", "1", "2", "2", "6", "local:///run/x/local-1"]
    assert one.attrs.get("hostlist") == "host[0-5]" and one.log.rank == 1


def test_brokers_whose_loss_cuts_off_others_are_critical() -> None:
    for size, critical in ((1, "0"), (2, "0"), (6, "0-2")):
        one = broker(0, size)
        set_own(one)
        assert one.attrs.get("broker.critical-ranks") == critical


def test_what_was_given_stays() -> None:
    one = broker(0, 2, broker_quorum="1", broker_mapping="[[0,2,1,1]]")
    one.attrs.set("jobid-path", "/f1")
    set_own(one)
    assert [one.attrs.get(name) for name in ("broker.quorum", "broker.mapping", "jobid-path")] == [
        "1",
        "[[0,2,1,1]]",
        "/f1",
    ]
    assert one.logged == []


def test_a_host_list_that_was_given_goes_before_the_names_of_the_hosts_if_it_names_each_broker() -> None:
    for given, listed in (("x[3,1]", "x[3,1]"), ("x[1-3]", "host[0-1]"), ("", "host[0-1]")):
        one = broker(0, 2, hostlist=given)
        set_own(one)
        assert one.attrs.get("hostlist") == listed
        assert one.boot.hosts == (["x3", "x1"] if listed == given else ["host0", "host1"])


def test_a_quorum_of_older_configurations_is_taken_for_its_number() -> None:
    one = broker(0, 4, broker_quorum="0-3")
    set_own(one)
    assert one.attrs.get("broker.quorum") == "4"
    assert "assuming 4" in one.logged[0]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"broker_quorum": "five"}, "broker.quorum"),
        ({"broker_critical-ranks": "0,9"}, "no rank 9, the size is 4"),
        ({"broker_critical-ranks": "x"}, "broker.critical-ranks"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        set_own(broker(0, 4, **given))
