"""The address that other hosts are told, by each kind of hint."""

from __future__ import annotations

import pytest

from headrace.broker.address import AddressError, address_of, hint_of


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


def test_an_attribute_goes_before_variables() -> None:
    interface, name = {"FLUX_IPADDR_INTERFACE": "eth1"}, {"FLUX_IPADDR_HOSTNAME": "1"}
    assert hint_of({"tbon.interface-hint": "eth0"}, interface) == "eth0"
    assert hint_of({}, {**interface, **name}) == "eth1"
    assert hint_of({}, name) == "hostname"
    assert hint_of({}, {}) == "default-route"
