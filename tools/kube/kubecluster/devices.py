"""Devices that nodes give to pods, as a node with GPUs does: by a device plugin of the kubelet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from . import build, node
from .box import wait_for
from .cluster import Cluster
from .control_plane import START_PATIENCE


@contextlib.contextmanager
def offered(cluster: Cluster, index: int, resource: str, path: str, ids: Sequence[str]) -> Iterator[None]:
    """A node has devices: containers that ask for the extended resource get some of them, and for the device with the
    id "2" the file at `path` with a 2 behind it. All are the null device.
    """
    name = f"device-plugin-{index}"
    socket = node.kubelet_folder(cluster.box.state, index) / "plugins_registry/devices.sock"
    cluster.box.start(name, [build.program("kubernetes", "device-plugin"), str(socket), resource, path, *ids])

    def allocatable() -> bool:
        its = cluster.api.get(f"/api/v1/nodes/{node.name(index)}")["status"]["allocatable"]
        return bool(its.get(resource) == str(len(ids)))

    try:
        wait_for(allocatable, f"{resource} of {node.name(index)}", START_PATIENCE, 0.1)
        yield
    finally:
        cluster.box.stop(name)
