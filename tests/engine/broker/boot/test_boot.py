"""What brokers of one machine know before they start."""

from __future__ import annotations

import pytest

from headrace.engine.broker.boot import boot
from headrace.formats.spec.topology import Topology


def test_a_broker_alone_has_no_links() -> None:
    info = boot.alone("here")
    assert (info.rank, info.size, info.hosts, info.bind, info.parent_uri) == (0, 1, ["here"], "", "")


def test_every_broker_of_a_machine_binds_where_its_children_connect() -> None:
    infos = boot.on_one_machine(6, "/run/x", Topology(6, "kary:2"), [f"h{rank}" for rank in range(6)])
    by_rank = {info.rank: info for info in infos}
    for info in infos:
        assert (info.hostname, info.hostlist) == (f"h{info.rank}", "h[0-5]")
        if info.rank:
            assert info.parent_uri == by_rank[info.topology.parent(info.rank)].bind
        assert info.members == {info.public_key}
    assert infos[0].parent_uri == ""
    assert len({info.bind for info in infos}) == 6


def test_brokers_of_a_machine_may_use_tcp() -> None:
    binds = [
        info.bind for info in boot.on_one_machine(3, "/run/x", Topology(3, "kary:2"), ["a", "b", "c"], tcp="127.0.0.1")
    ]
    assert len(set(binds)) == 3
    assert all(bind.startswith("tcp://127.0.0.1:") for bind in binds)


def test_keys_are_random_and_not_shown() -> None:
    first, second = (boot.on_one_machine(2, "/run/x", Topology(2, "kary:2"), ["a", "b"])[1] for _ in range(2))
    assert first.secret_key != second.secret_key
    assert len(first.secret_key) == 40
    assert first.secret_key.decode() not in repr(first)


def test_a_host_may_be_given_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_FAKE_HOSTNAME", "fake7")
    assert boot.local_hostname() == "fake7"
    assert boot.alone().hosts == ["fake7"]
