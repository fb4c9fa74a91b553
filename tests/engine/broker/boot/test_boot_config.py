"""The `[bootstrap]` table: who is who, where each binds and connects, and what is said of mistakes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.broker.boot.boot import BootError, BootInfo
from headrace.engine.broker.boot.config import from_config, read_certificate

PUBLIC, SECRET = "p" * 40, "s" * 40


@pytest.fixture
def cert(tmp_path: Path) -> str:
    path = tmp_path / "cert"
    path.write_text(f'metadata\ncurve\n    public-key = "{PUBLIC}"\n    secret-key = "{SECRET}"\n')
    path.chmod(0o600)
    return str(path)


def booted(monkeypatch: pytest.MonkeyPatch, host: str, topo: str = "kary:32", **table: Any) -> BootInfo:
    monkeypatch.setenv("FLUX_FAKE_HOSTNAME", host)
    return from_config({"bootstrap": table}, topo)


def test_hosts_have_ranks_in_their_order_and_find_their_parent(cert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "curve_cert": cert,
        "default_port": 9000,
        "default_bind": "tcp://eth0:%p",
        "default_connect": "tcp://%h:%p",
        "hosts": [{"host": "a[0-1]"}, {"host": "b"}, {"host": "a0", "connect": "tcp://a0.lan:1"}],
    }
    lead = booted(monkeypatch, "a0", **table)
    assert (lead.rank, lead.size, lead.hosts) == (0, 3, ["a0", "a1", "b"])
    assert (lead.bind, lead.parent_uri) == ("tcp://eth0:9000", "")
    leaf = booted(monkeypatch, "b", **table)
    # It may get children of its own when the instance grows; in a flat tree none.
    assert (leaf.rank, leaf.bind, leaf.parent_uri) == (2, "tcp://eth0:9000", "tcp://a0.lan:1")
    assert booted(monkeypatch, "b", topo="", **table).bind == ""
    assert (leaf.public_key, leaf.secret_key, leaf.parent_key) == (PUBLIC.encode(), SECRET.encode(), PUBLIC.encode())
    assert leaf.members == {PUBLIC.encode()}


def test_a_host_may_name_its_parent(cert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [{"host": "a"}, {"host": "b"}, {"host": "c", "parent": "b"}]
    table = {"curve_cert": cert, "default_bind": "ipc:///x/%h", "default_connect": "ipc:///x/%h", "hosts": hosts}
    assert booted(monkeypatch, "c", **table).parent_uri == "ipc:///x/b"
    assert booted(monkeypatch, "b", **table).bind == "ipc:///x/b"


@pytest.mark.parametrize(
    ("table", "lead", "leaf"),
    [
        ({}, False, False),
        ({"enable_ipv6": False}, False, False),
        ({"enable_ipv6": True}, True, True),
        ({"default_bind": "tcp://*:%p"}, True, False),
        ({"default_connect": "tcp://[::1]:%p"}, False, True),
        # Its name may have an IPv4 address too.
        ({"default_bind": "tcp://[::1]:%p", "default_connect": "tcp://localhost:%p"}, True, True),
    ],
)
def test_sockets_have_ipv6_where_it_is_asked_for_or_nothing_else_would_do(
    cert: str, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], lead: bool, leaf: bool
) -> None:
    ends = {"default_bind": "tcp://lo:%p", "default_connect": "tcp://127.0.0.1:%p"}
    whole = {"curve_cert": cert, "hosts": [{"host": "a"}, {"host": "b"}], **ends, **table}
    assert booted(monkeypatch, "a", **whole).bind_ipv6 == lead
    assert booted(monkeypatch, "b", **whole).parent_ipv6 == leaf


def test_without_a_shape_all_are_under_the_first(cert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [{"host": f"a{rank}"} for rank in range(40)]
    table = {"curve_cert": cert, "default_bind": "ipc:///x/%h", "default_connect": "ipc:///x/%h", "hosts": hosts}
    assert booted(monkeypatch, "a0", "", **table).topology.max_level == 1
    assert booted(monkeypatch, "a39", "", **table).topology.uri == "custom"
    assert booted(monkeypatch, "a39", **table).topology.max_level == 2


def test_one_host_or_none_needs_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert booted(monkeypatch, "a").size == 1
    assert booted(monkeypatch, "a", hosts=[{"host": "a"}]).size == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hosts": [{"host": "b[0-1]"}]}, "bootstrap.hosts: this host, a, is not among b[0-1]"),
        ({"hosts": [{"host": 5}]}, "bootstrap.hosts[0].host: must be a string"),
        ({"hosts": [{"host": "a"}, {"host": "b[1-"}]}, "bootstrap.hosts[1].host: "),
        ({"hosts": ["a"]}, "bootstrap.hosts[0].host: must be a string"),
        ({"hosts": 5}, "bootstrap.hosts: must be an array of tables"),
        ({"hosts": [{"host": "a", "bound": "x"}]}, "bootstrap.hosts[0].bound: a host has host, bind, connect, parent"),
        ({"hosts": [{"host": "a", "bind": 5}]}, "bootstrap.hosts[0].bind: a host has"),
        ({"hosts": [], "curve_cert": "/nonexistent"}, "No such file"),
        ({"hosts": [{"host": "a"}, {"host": "b", "parent": "x"}]}, "bootstrap.hosts: parent 'x' of b is not in list"),
        ({"hosts": [{"host": "a", "parent": "x"}]}, "bootstrap.hosts: parent 'x' of a is not in list"),
        ({"hosts": [{"host": "a", "parent": "a"}]}, "bootstrap.hosts: a cannot be its own parent"),
        ({"hosts": [{"host": "a,b,a"}]}, "bootstrap.hosts: a is there twice"),
        ({"hosts": [{"host": "a"}, {"host": "b[3,1]"}, {"host": "b1"}]}, "bootstrap.hosts: b1 is there twice"),
        ({"hosts": [{"host": "a"}, {"host": "b,b", "parent": "a"}]}, "bootstrap.hosts: b is there twice"),
        ({"curve_cert": None}, "bootstrap.curve_cert: must name a certificate file"),
        ({"default_bind": None}, "bootstrap.hosts: a needs bind, or set bootstrap.default_bind"),
    ],
)
def test_a_mistake_names_its_field(
    cert: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], text: str
) -> None:
    hosts = [{"host": "a"}, {"host": "b"}]
    table = {"curve_cert": cert, "default_bind": "x", "default_connect": "x", "hosts": hosts, **change}
    with pytest.raises(BootError) as failure:
        booted(monkeypatch, "a", **table)
    assert text in str(failure.value)


def test_a_certificate_must_be_complete_and_its_owners_alone(cert: str) -> None:
    assert read_certificate(cert) == (PUBLIC.encode(), SECRET.encode())
    Path(cert).chmod(0o640)
    with pytest.raises(BootError, match="set its mode to 0600"):
        read_certificate(cert)
    Path(cert).chmod(0o600)
    Path(cert).write_text(f'public-key = "{PUBLIC}"\n')
    with pytest.raises(BootError, match="flux keygen"):
        read_certificate(cert)
    Path(cert).write_bytes(b"\xff\xfe")
    with pytest.raises(BootError):
        read_certificate(cert)
    with pytest.raises(BootError, match="No such file"):
        read_certificate(cert + "x")


def test_a_parent_whose_name_has_no_address_is_told_of(cert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"curve_cert": cert, "default_bind": "tcp://lo:%p", "default_connect": "tcp://%h:%p"}
    hosts = [
        {"host": "x.invalid"},
        {"host": "b"},
        {"host": "localhost", "parent": "b"},
        {"host": "c", "parent": "localhost"},
    ]
    asked = socket.getaddrinfo
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def resolve(host: bytes, *args: Any, **more: Any) -> Any:
        if host == b"x.invalid":
            raise unknown
        return asked(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert booted(monkeypatch, "b", **table, hosts=hosts).parent_unresolved == "x.invalid: Name or service not known"
    assert booted(monkeypatch, "c", **table, hosts=hosts).parent_unresolved == ""
