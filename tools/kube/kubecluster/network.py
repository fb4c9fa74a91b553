"""The cable between the machine and a cluster, and the rules that faults need."""

from __future__ import annotations

import subprocess

from .box import Box
from .errors import KubeError
from .places import NODES, Addresses


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise KubeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def connect(box: Box, addresses: Addresses) -> None:
    """Lay the cable, and route the cluster's addresses to it, those of its pods and Services too."""
    cable = addresses.cable
    _ip("link", "add", cable, "type", "veth", "peer", "name", "machine", "netns", str(box.pid))
    _ip("addr", "add", f"{addresses.machine}/26", "dev", cable)
    _ip("link", "set", cable, "up")
    own = [addresses.control_plane, *(addresses.node(index) for index in range(NODES))]
    lines = [f"addr add {address}/26 dev machine" for address in own]
    lines += ["link set machine up", f"route add default via {addresses.machine}"]
    box.run(["ip", "-batch", "-"], ["net"], input="\n".join(lines) + "\n")
    _ip("route", "add", addresses.all, "via", addresses.control_plane, "dev", cable)


def disconnect(addresses: Addresses) -> None:
    """Remove the machine's end; it goes by itself moments after the namespaces, but a successor may come sooner."""
    subprocess.run(["ip", "link", "del", addresses.cable], capture_output=True, check=False)


def taken(addresses: Addresses) -> bool:
    """Whether the machine has this cable, be its cluster known here or not."""
    return subprocess.run(["ip", "link", "show", addresses.cable], capture_output=True, check=False).returncode == 0
