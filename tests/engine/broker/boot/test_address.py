"""The address that other hosts are told, by each kind of hint."""

from __future__ import annotations

import io
import socket

import pytest

from headrace.engine.broker.boot import address
from headrace.engine.broker.boot.address import (
    AddressError,
    address_of,
    hint_of,
    needs_ipv6_to_bind,
    needs_ipv6_to_connect,
    unreached,
)


def test_the_address_is_one_that_others_can_use() -> None:
    parts = address_of("localhost").split(".")
    assert len(parts) == 4 and all(0 <= int(part) < 256 for part in parts)


@pytest.mark.parametrize("hint", ["hostname", "lo", "127.0.0.0/8", "127.9.9.9/8"])
def test_a_hint_chooses(hint: str) -> None:
    assert address_of("localhost", hint) == "127.0.0.1"


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        ("nosuch", "it has no IPv4 address here, where there are .*lo"),
        ("240.0.0.0/24", "no interface of this host is in that network"),
        ("10.0.0.0/99", "hint=10.0.0.0/99: .*99"),
        ("hostname", "no.such.host.invalid: "),
    ],
)
def test_a_hint_that_fits_nothing_is_named(hint: str, text: str) -> None:
    with pytest.raises(AddressError, match=text):
        address_of("no.such.host.invalid", hint)


def without_route(monkeypatch: pytest.MonkeyPatch, **interfaces: str) -> None:
    """A host without a default route, of these interfaces, whose name stands for loopback."""

    def of_interface(name: str) -> str:
        if not interfaces[name]:
            raise OSError
        return interfaces[name]

    monkeypatch.setattr("builtins.open", lambda path: io.StringIO("Iface Destination\n"))
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(enumerate(interfaces, 1)))
    monkeypatch.setattr(address, "_of_interface", of_interface)


@pytest.mark.parametrize("name", ["localhost", "no.such.host.invalid"])
def test_without_a_route_the_only_interface_beside_loopback_is_taken(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    without_route(monkeypatch, lo="127.0.0.1", eth0="10.1.2.3", eth1="")
    assert address_of(name) == "10.1.2.3"
    without_route(monkeypatch, lo="127.0.0.1", eth0="10.1.2.3", eth1="10.2.2.3")
    assert address_of(name) == "127.0.0.1"


def test_loopback_reaches_no_other_host_unless_somebody_asked_for_it() -> None:
    told = unreached("a", "127.0.1.1", "b", "default-route")
    assert told.startswith(
        "b cannot reach a: there is no default route, nor a single interface beside loopback, and no "
    )
    assert "no address of its name but 127.0.1.1; tbon.interface-hint names an interface" in told
    assert unreached("a", "127.0.1.1", "b", "hostname").startswith("b cannot reach a: there is no address of its name")
    assert unreached("a", "127.0.0.1", "b", "lo") == ""
    assert unreached("a", "127.0.0.1", "a", "default-route") == ""
    assert unreached("a", "10.1.2.3", "b", "default-route") == ""


def test_an_attribute_goes_before_variables() -> None:
    interface, name = {"FLUX_IPADDR_INTERFACE": "eth1"}, {"FLUX_IPADDR_HOSTNAME": "1"}
    assert hint_of({"tbon.interface-hint": "eth0"}, interface) == "eth0"
    assert hint_of({}, {**interface, **name}) == "eth1"
    assert hint_of({}, name) == "hostname"
    assert hint_of({}, {}) == "default-route"


def resolve(monkeypatch: pytest.MonkeyPatch, **known: tuple[int, ...]) -> None:
    """Names and the families of their addresses; others are unknown. Addresses in dots need nobody."""

    def getaddrinfo(host: bytes, _port: None, type: int) -> list[tuple[int, int]]:
        name = host.decode()
        if name[0].isdigit():
            return [(socket.AF_INET, type)]
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, type) for family in known[name]]

    monkeypatch.setattr(address.socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    ("endpoint", "needed"),
    [
        ("tcp://10.0.0.1:8050", False),
        ("tcp://[fd00::1]:8050", True),
        ("tcp://[::1%lo]:8050", True),
        ("tcp://10.0.0.9:0;[fd00::1]:8050", True),
        ("tcp://old:8050", False),
        ("tcp://both:8050", False),
        ("tcp://new:8050", True),
        ("tcp://not-yet:8050", False),
        ("tcp://a\0b:8050", False),
    ],
)
def test_ipv6_is_needed_where_there_is_no_other_way(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, needed: bool
) -> None:
    resolve(monkeypatch, old=(socket.AF_INET,), both=(socket.AF_INET6, socket.AF_INET), new=(socket.AF_INET6,))
    assert needs_ipv6_to_connect(endpoint) == needed
    assert needs_ipv6_to_bind(endpoint) == needed


def test_an_interface_is_bound_at_its_ipv4_address_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a host has its name."""
    resolve(monkeypatch, lo=(socket.AF_INET6,))
    assert not needs_ipv6_to_bind("tcp://lo:8050")
    monkeypatch.setattr(address.socket, "if_nameindex", lambda: [(1, "lo"), (2, "no-ipv4")])
    assert needs_ipv6_to_bind("tcp://no-ipv4:8050")


def test_who_listens_everywhere_takes_both() -> None:
    assert needs_ipv6_to_bind("tcp://*:8050")
    assert needs_ipv6_to_bind("tcp://[::]:*")
