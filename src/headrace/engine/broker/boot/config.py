"""Boot from the `[bootstrap]` table of a configuration, as in real Flux (flux-config-bootstrap(5))."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

from headrace.engine.broker.boot import boot
from headrace.engine.broker.boot.address import families_of, needs_ipv6_to_bind
from headrace.engine.broker.boot.boot import BootError, BootInfo
from headrace.formats.spec.curve_certificate import key_pair
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.os_error import reason
from headrace.formats.spec.topology import Topology, TopologyError

_HOST_KEYS = ("host", "bind", "connect", "parent")
# Real Flux's name for the topology that the table describes.
_CUSTOM = "custom"


def read_certificate(path: str) -> tuple[bytes, bytes]:
    """The (public, secret) keys of a zcert file.

    Raises BootError, also if anyone but the owner can read the file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise BootError(f"{path}: others may read this secret certificate, set its mode to 0600")
            text = file.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise BootError(f"{path}: {reason(exc)}") from None
    try:
        return key_pair(text)
    except ValueError as exc:
        raise BootError(f"{path}: {exc}; make one with `flux keygen`") from None


def from_config(config: dict[str, Any], topo: str) -> BootInfo:
    """Boot as the entry of the table for this host. Raises BootError naming the field.

    `topo` is the requested topology. If it is "", a host without `parent` is a child of rank 0.
    """
    table = config["bootstrap"]
    if not isinstance(table, dict):
        raise BootError("bootstrap: must be a table")
    hostname = boot.local_hostname()
    entries = _hosts(table)
    # An unusable certificate is an error even for a single broker, which needs none.
    keys = read_certificate(_certificate(table)) if "curve_cert" in table else None
    if not entries:
        return boot.alone(hostname, topo or _CUSTOM)
    names = [entry["host"] for entry in entries]
    if hostname not in names:
        raise BootError(f"bootstrap.hosts: this host, {hostname}, is not among {Hostlist(names)}")
    rank = names.index(hostname)
    topology = _topology(entries, topo)
    info = BootInfo(rank, len(names), "config", topology, hostname, names)
    if keys is None and len(names) == 1:
        return info
    info.certificate = _certificate(table)
    assert keys is not None, "a table without a certificate was refused"
    info.public_key, info.secret_key = keys
    # All hosts share one certificate.
    info.members = {info.public_key}
    info.parent_key = info.public_key
    _add_addresses(info, topology, entries, table, topo)
    return info


def _certificate(table: dict[str, Any]) -> str:
    certificate = table.get("curve_cert")
    if not isinstance(certificate, str):
        raise BootError("bootstrap.curve_cert: must name a certificate file, make one with `flux keygen`")
    return certificate


def _add_addresses(
    info: BootInfo, topology: Topology, entries: list[dict[str, str]], table: dict[str, Any], topo: str
) -> None:
    """Set the addresses where this host listens for children, and where its parent listens."""
    rank = info.rank
    # Flux enables IPv6 only on request. Headrace also enables it if an endpoint needs it.
    ipv6 = table.get("enable_ipv6") is True
    # Brokers without children may get some when the instance grows. In a flat tree, only rank 0 does.
    may_listen = (not rank or topo) and (entries[rank].get("bind") or table.get("default_bind"))
    if topology.children(rank) or may_listen:
        info.bind = _endpoint(entries[rank], "bind", table, "default_bind")
        info.bind_ipv6 = ipv6 or needs_ipv6_to_bind(info.bind)
    if rank:
        parent = entries[topology.parent(rank)]
        info.parent_uri = _endpoint(parent, "connect", table, "default_connect")
        # The parent's name may also have an IPv4 address, at which it does not listen.
        parent_binds_ipv6 = "[" in str(parent.get("bind") or table.get("default_bind"))
        families, why = families_of(info.parent_uri)
        info.parent_ipv6 = ipv6 or parent_binds_ipv6 or families == {socket.AF_INET6}
        if info.parent_uri.startswith("tcp://"):
            info.parent_unresolved = why


def _topology(entries: list[dict[str, str]], topo: str) -> Topology:
    names = [entry["host"] for entry in entries]
    for entry in entries:
        parent = entry.get("parent", "")
        if parent == entry["host"]:
            raise BootError(f"bootstrap.hosts: {parent} cannot be its own parent")
        if parent and parent not in names:
            raise BootError(f"bootstrap.hosts: parent '{parent}' of {entry['host']} is not in list")
    try:
        parents = None
        if not topo or any("parent" in entry for entry in entries):
            parents = [-1] + [names.index(entry.get("parent") or names[0]) for entry in entries[1:]]
        return Topology(len(names), topo or _CUSTOM, parents)
    except (TopologyError, ValueError) as exc:
        raise BootError(f"bootstrap.hosts: {exc}") from None


def _hosts(table: dict[str, Any]) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = []
    hosts = table.get("hosts", [])
    if not isinstance(hosts, list):
        raise BootError("bootstrap.hosts: must be an array of tables")
    for index, entry in enumerate(hosts):
        where = f"bootstrap.hosts[{index}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("host"), str):
            raise BootError(f"{where}.host: must be a string")
        for key, value in entry.items():
            if key not in _HOST_KEYS or not isinstance(value, str):
                raise BootError(f"{where}.{key}: a host has {', '.join(_HOST_KEYS)}, all strings")
        try:
            names = list(Hostlist.parse(entry["host"]))
        except ValueError as exc:
            raise BootError(f"{where}.host: {exc}") from None
        for name in names:
            known = next((other for other in entries if other["host"] == name), None)
            fresh = {key: str(value) for key, value in entry.items() if key in ("bind", "connect", "parent")}
            if known is None:
                entries.append({"host": name, **fresh})
            elif fresh and names.count(name) == 1:
                # A host's addresses may be in several entries. A later entry replaces earlier ones.
                known.update(fresh)
            else:
                raise BootError(f"bootstrap.hosts: {name} is there twice")
    return entries


def _endpoint(entry: dict[str, str], key: str, table: dict[str, Any], default: str) -> str:
    text = entry.get(key) or table.get(default)
    if not isinstance(text, str) or not text:
        raise BootError(f"bootstrap.hosts: {entry['host']} needs {key}, or set bootstrap.{default}")
    return text.replace("%h", entry["host"]).replace("%p", str(table.get("default_port", 8050)))
