"""Boot by exchange: each broker gets its parent's address and key, a parent the keys of its children alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.engine.broker.boot.boot import BootError, BootInfo
from headrace.engine.broker.boot.pmi import from_launcher, launcher
from headrace.engine.broker.boot.pmi_clients import Pmi1Client, Pmi2Client, PmiError
from headrace.engine.broker.boot.slurm import SlurmMeeting


class Server:
    """What the clients of one launch share."""

    def __init__(self, size: int, **known: str) -> None:
        self.size, self.known = size, known
        self.fence = threading.Barrier(size)
        self.kvs: dict[str, str] = {}


class Client:
    """A launcher's client without a launcher; `env` carries its server and rank."""

    kvsname = "ƒ2AniAMV"

    def __init__(self, env: Any) -> None:
        self.server: Server = env["server"]
        self.rank, self.size = env["rank"], self.server.size

    def put(self, key: str, value: str) -> None:
        self.server.kvs[key] = value

    def get(self, key: str) -> str:
        return self.server.kvs[key]

    def lookup(self, key: str) -> str:
        return self.server.known.get(key, "")

    def barrier(self) -> None:
        self.server.fence.wait(60)

    def finalize(self) -> None:
        pass


def launched(server: Server, method: str = "simple", attrs: Any = None, **env: str) -> list[BootInfo]:
    """All brokers of a launch."""

    def broker(rank: int) -> BootInfo:
        variables: Any = {"server": server, "rank": rank, **env}
        wanted = {"tbon.topo": "kary:2", **(attrs or {})}
        try:
            return from_launcher(method, Client, variables, "/run/x", wanted)  # type: ignore[arg-type]
        except BootError:
            # The others would wait for this one.
            server.fence.abort()
            raise

    with ThreadPoolExecutor(server.size) as pool:
        return list(pool.map(broker, range(server.size)))


def test_everyone_knows_its_neighbours_and_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_FAKE_HOSTNAME", "node")
    infos = launched(Server(6, PMI_process_mapping="(vector,(0,1,6))"))
    assert len({info.secret_key for info in infos}) == 6
    for info in infos:
        children = info.topology.children(info.rank)
        assert info.members == {infos[child].public_key for child in children}
        assert info.bind == (f"ipc:///run/x/tbon-{info.rank}" if children else "")
        if info.rank:
            parent = infos[info.topology.parent(info.rank)]
            assert (info.parent_uri, info.parent_key) == (parent.bind, parent.public_key)
    assert infos[0].hosts == ["node"] * 6
    assert infos[3].hosts == []


@pytest.mark.parametrize("mapping", ["", "(vector,(0,2,1))", "(vector,(0,1,1),(1,1,1))", "nonsense"])
def test_brokers_that_may_be_on_several_hosts_talk_over_tcp(mapping: str) -> None:
    lead, follower = launched(Server(2, PMI_process_mapping=mapping))
    assert lead.bind.startswith("tcp://")
    # No interface is listened at that children are not told of.
    assert follower.parent_uri == lead.bind


def test_a_broker_whose_children_are_all_on_its_node_needs_no_tcp_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four brokers of a binary tree: ranks 0 to 2 on one node, and rank 3, whose parent is 1, on another."""
    monkeypatch.setenv("FLUX_FAKE_HOSTNAME", "node")
    server = Server(4, PMI_process_mapping="(vector,(0,1,3),(1,1,1))")
    infos = launched(server, attrs={"tbon.topo": "kary:2"})
    assert infos[0].bind == infos[1].parent_uri == infos[2].parent_uri == "ipc:///run/x/tbon-0"
    assert infos[1].bind.startswith("tcp://") and infos[3].parent_uri.startswith("tcp://")


def test_brokers_of_one_host_talk_over_tcp_where_that_is_wanted() -> None:
    server = Server(2, PMI_process_mapping="(vector,(0,1,2))")
    lead, follower = launched(server, attrs={"tbon.prefertcp": "1", "tbon.interface-hint": "lo"})
    assert lead.bind.startswith("tcp://127.0.0.1:")
    assert follower.parent_uri == lead.bind
    _, follower = launched(Server(2), FLUX_IPADDR_INTERFACE="lo")
    assert follower.parent_uri.startswith("tcp://127.0.0.1:")
    env: Any = {"server": Server(2), "rank": 0}
    with pytest.raises(BootError, match=r"simple: tbon\.interface-hint=nosuch"):
        from_launcher("simple", Client, env, "/run/x", {"tbon.interface-hint": "nosuch"})  # type: ignore[arg-type]


def test_an_address_that_is_not_of_this_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.broker.boot.address.address_of", lambda _name, _hint: "192.0.2.1")
    with pytest.raises(
        BootError, match=r"simple: cannot listen at 192\.0\.2\.1 \(tbon\.interface-hint=default-route\)"
    ):
        from_launcher("simple", Client, {"server": Server(2), "rank": 0}, "/run/x", {})  # type: ignore[arg-type,dict-item]


def test_a_host_without_a_way_to_its_own_address_is_told_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.broker.boot.address.no_route", lambda _address: "Network is unreachable")
    server = Server(2)

    def broker(rank: int) -> str:
        env: Any = {"server": server, "rank": rank}
        with pytest.raises(BootError) as refused:
            from_launcher("simple", Client, env, "/run/x", {"tbon.interface-hint": "lo"})  # type: ignore[arg-type]
        return str(refused.value)

    with ThreadPoolExecutor(2) as pool:
        for text in pool.map(broker, range(2)):
            assert "at 127.0.0.1: Network is unreachable; tbon.interface-hint" in text


def test_hosts_that_know_but_loopback_of_each_other_are_told_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    here = iter(("one", "two"))
    monkeypatch.setattr("headrace.engine.broker.boot.boot.local_hostname", lambda: next(here))
    monkeypatch.setattr("headrace.engine.broker.boot.address.address_of", lambda _name, _hint: "127.0.0.1")
    server = Server(2)
    told = []

    def broker(rank: int) -> None:
        env: Any = {"server": server, "rank": rank}
        with pytest.raises(BootError, match=r"simple: \w+ cannot reach \w+: .*tbon\.interface-hint") as refused:
            from_launcher("simple", Client, env, "/run/x", {"tbon.topo": "kary:2"})  # type: ignore[arg-type]
        told.append(str(refused.value))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(broker, range(2)))
    assert told[0] == told[1]


def test_one_broker_exchanges_nothing() -> None:
    (info,) = launched(Server(1))
    assert (info.size, info.members, info.attrs) == (1, set(), {})


def test_a_job_of_an_instance_knows_its_parent_and_its_level() -> None:
    server = Server(1, **{"flux.instance-level": "1", "flux.taskmap": "[[0,1,1,1]]"})
    env = {"FLUX_URI": "local:///parent", "FLUX_KVS_NAMESPACE": "job-7", "FLUX_JOB_ID_PATH": "/f1/f2"}
    (info,) = launched(server, **env)
    wanted = {
        "instance-level": "1",
        "jobid-path": "/f1/f2",
        "jobid": "ƒ2AniAMV",
        "parent-uri": "local:///parent",
        "parent-kvs-namespace": "job-7",
        "broker.mapping": "[[0,1,1,1]]",
    }
    assert wanted.items() <= info.attrs.items()


def test_the_interface_hint_is_the_enclosing_instance_s_unless_another_is_given() -> None:
    server = Server(1, **{"flux.tbon-interface-hint": "lo"})
    (info,) = launched(server)
    assert info.attrs == {"tbon.interface-hint": "lo"}
    assert launched(server, attrs={"tbon.interface-hint": "eth0"})[0].attrs == {}
    assert launched(server, FLUX_IPADDR_HOSTNAME="")[0].attrs == {}


def test_an_inherited_interface_hint_is_followed_when_brokers_talk_over_tcp() -> None:
    with pytest.raises(BootError, match=r"simple: tbon\.interface-hint=nosuch"):
        launched(Server(2, **{"flux.tbon-interface-hint": "nosuch"}))


def test_a_launcher_that_is_not_flux_says_nothing_of_a_parent() -> None:
    (info,) = launched(Server(1), FLUX_URI="local:///another")
    assert (info.attrs, info.method) == ({}, "simple")


def test_a_failed_exchange_names_the_method() -> None:
    class Broken(Client):
        def lookup(self, key: str) -> str:
            raise PmiError("the process manager closed the connection")

    with pytest.raises(BootError, match="pmi2: the process manager closed the connection"):
        from_launcher("pmi2", Broken, {"server": Server(2), "rank": 0}, "/run/x", {})  # type: ignore[arg-type]


def test_who_launched_us_is_seen_by_the_variables() -> None:
    pmi = {"PMI_FD": "3", "PMI_RANK": "0", "PMI_SIZE": "1"}
    slurm = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}
    assert launcher({}) is None
    assert launcher(pmi) == ("simple", Pmi1Client)
    assert launcher({**pmi, **slurm}) == ("pmi2", Pmi2Client)
    assert launcher(slurm) == ("slurm", SlurmMeeting)


def test_methods_are_tried_in_the_order_that_is_wanted() -> None:
    env = {"PMI_FD": "3", "PMI_RANK": "0", "PMI_SIZE": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}

    def chosen(methods: str) -> Any:
        return launcher({**env, "SLURM_JOB_ID": "1", "FLUX_PMI_CLIENT_METHODS": methods})

    assert chosen("libpmi simple pmi2") == ("simple", Pmi1Client)
    assert chosen("slurm simple") == ("slurm", SlurmMeeting)
    assert chosen("libpmi single simple") is None
    with pytest.raises(BootError, match="FLUX_PMI_CLIENT_METHODS=libpmi libpmi2: none of them is offered here"):
        chosen("libpmi libpmi2")
