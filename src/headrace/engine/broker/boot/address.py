"""The IPv4 address of this host for other hosts, by `tbon.interface-hint` (flux-broker-attributes(7)).

`default-route` is the address of the interface with the default route. `hostname` is the address that our host name
resolves to. Any other hint is the name of an interface, or a network such as 10.1.0.0/16. This file also decides which
configured endpoints need IPv6. IPv6 is not always enabled, because a ZeroMQ socket with IPv6 knows an interface only by
its IPv6 address, and prefers the IPv6 address of a host name.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

_SIOCGIFADDR = 0x8915
_DEFAULT = "default-route"


class AddressError(ValueError):
    """No address of this host matches the hint."""


def hint_of(attrs: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The interface hint, from the attribute if it is set, otherwise from environment variables."""
    given = attrs.get("tbon.interface-hint") or env.get("FLUX_IPADDR_INTERFACE")
    return given or ("hostname" if "FLUX_IPADDR_HOSTNAME" in env else _DEFAULT)


def address_of(hostname: str, hint: str = _DEFAULT) -> str:
    """The IPv4 address of this host for other hosts, in dotted notation. Raises AddressError.

    `default-route` falls back on the host name's address, then on the only interface besides loopback, then on
    loopback.
    """
    if hint == _DEFAULT:
        with contextlib.suppress(OSError), open("/proc/net/route") as routes:
            for line in routes.readlines()[1:]:
                fields = line.split()
                if fields[1] == "00000000":
                    return _of_interface(fields[0])
    if hint in (_DEFAULT, "hostname"):
        try:
            found = socket.gethostbyname(hostname)
        except OSError as exc:
            if hint != _DEFAULT:
                raise AddressError(f"tbon.interface-hint=hostname: {hostname}: {exc.strerror}") from None
            found = "127.0.0.1"
        return _only_external_address() or found if hint == _DEFAULT and is_loopback(found) else found
    if "/" in hint:
        return _address_in_network(hint)
    try:
        return _of_interface(hint)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise AddressError(
            f"tbon.interface-hint={hint}: it has no IPv4 address here, where there are {names}"
        ) from None


def is_loopback(address: str) -> bool:
    return address.startswith("127.")


def unreached(host: str, address: str, child: str, hint: str) -> str:
    """The reason why a broker on `child` cannot reach one on `host` at `address`, or "".

    It is "" unless `address` is a loopback address and was not configured explicitly.
    """
    if host == child or not is_loopback(address) or hint not in (_DEFAULT, "hostname"):
        return ""
    route = "no default route, nor a single interface beside loopback, and " if hint == _DEFAULT else ""
    return (
        f"{child} cannot reach {host}: there is {route}no address of its name but {address}; tbon.interface-hint names "
        "an interface, or a network such as 10.1.0.0/16 (flux start -Stbon.interface-hint=NAME, or flux batch "
        "--conf=tbon.interface-hint=NAME)"
    )


def no_route(address: str) -> str:
    """The reason why this host has no route to an IPv4 address, or "" if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # For a datagram socket, this looks up the route and sends nothing.
            probe.connect((address, 1))
        except OSError as exc:
            why = exc.strerror or str(exc)
            return f"{why} (is the interface lo up?)" if is_loopback(address) else why
    return ""


def needs_ipv6_to_bind(endpoint: str) -> bool:
    """True if an endpoint to bind needs IPv6.

    It does for `*` (which then also has IPv4), an interface without IPv4, or an IPv6 address.
    """
    host = _host_of(endpoint)
    if host == "*":
        return True
    if host not in (name for _, name in socket.if_nameindex()):
        return needs_ipv6_to_connect(endpoint)
    try:
        _of_interface(host)
    except OSError:
        return True
    return False


def needs_ipv6_to_connect(endpoint: str) -> bool:
    """True if an endpoint to connect to needs IPv6: an IPv6 address, or a name that only resolves to such."""
    return families_of(endpoint)[0] == {socket.AF_INET6}


def families_of(endpoint: str) -> tuple[frozenset[int], str]:
    """The address families of an endpoint's host. If there is none, also the reason."""
    host = _host_of(endpoint)
    if ":" in host:
        return frozenset({socket.AF_INET6}), ""
    try:
        # As bytes: a str would load the codecs for international domain names.
        found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except OSError as exc:
        return frozenset(), f"{host}: {exc.strerror}"
    except ValueError as exc:
        return frozenset(), f"{host}: {exc}"
    return frozenset(family for family, *_ in found), ""


def _host_of(endpoint: str) -> str:
    """The host in `tcp://HOST:PORT`, without the source address that may precede it."""
    return endpoint.removeprefix("tcp://").rpartition(";")[2].rpartition(":")[0].strip("[]")


def _address_in_network(hint: str) -> str:
    import ipaddress

    try:
        network = ipaddress.IPv4Network(hint, strict=False)
    except ValueError as exc:
        raise AddressError(f"tbon.interface-hint={hint}: {exc}") from None
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            address = _of_interface(name)
            if ipaddress.IPv4Address(address) in network:
                return address
    raise AddressError(f"tbon.interface-hint={hint}: no interface of this host is in that network")


def _only_external_address() -> str:
    """The address of the only interface besides loopback that has one, or ""."""
    found = set()
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            found.add(_of_interface(name))
    others = [address for address in found if not is_loopback(address)]
    return others[0] if len(others) == 1 else ""


def _of_interface(name: str) -> str:
    """The address of the interface with this name. Raises OSError without one."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])
