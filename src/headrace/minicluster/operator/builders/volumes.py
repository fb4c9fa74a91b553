"""The volumes of a pod, and their mounts in each container."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...api.fields import MiniCluster, Volume
from .. import names
from ..keys import MOUNTED
from . import own_flux
from .images import Images, has_own_flux, image_mount, image_volume, view_image

_READABLE = 0o444  # readable for any user, as the container's user is unknown


class PodVolumes:
    """Collects the users' volumes of one pod's containers.

    Containers that use the same key for the same source share a volume. If they use the same key for different sources,
    each has its own volume.
    """

    def __init__(self, base: list[dict[str, Any]]) -> None:
        self._named = {one["name"]: one for one in base}

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The pod's volumes so far."""
        return list(self._named.values())

    def mounts(self, given: dict[str, Volume]) -> list[dict[str, Any]]:
        """The volume mounts of a container with these volumes."""
        return [_mount(self._add(key, volume), volume) for key, volume in given.items()]

    def _add(self, key: str, volume: Volume) -> str:
        source, name, number = _source(volume), key, 1
        while name in self._named:
            if self._named[name] == {"name": name, **source}:
                return name
            number += 1
            suffix = f"-{number}"
            name = key[: 63 - len(suffix)].rstrip("-") + suffix
        self._named[name] = {"name": name, **source}
        return name


def base_volumes(cluster: MiniCluster, images: Images) -> list[dict[str, Any]]:
    """The volumes of every pod with a broker: the Flux Operator's, in its order, then our own."""
    files = {"items": own_flux.items(cluster)} if has_own_flux(cluster) else {}
    volumes: list[dict[str, Any]] = [
        {"name": names.SOFTWARE_VOLUME, "emptyDir": {}},
        {"name": names.HOME_VOLUME, "emptyDir": {}},
        {"name": names.view_volume(cluster), "emptyDir": {}},
        {"name": names.config_volume(cluster), "configMap": {"name": names.config_map(cluster), **files}},
        secret_volume(names.keys_volume(cluster), names.secret(cluster), MOUNTED),
    ]
    if images.as_volume and not has_own_flux(cluster):
        volumes.append(image_volume(names.VIEW_IMAGE_VOLUME, view_image(cluster, images)[0]))
    return volumes


def secret_volume(name: str, secret: str, files: Iterable[str]) -> dict[str, Any]:
    """A volume with keys of a Secret as files of the same names."""
    items = [{"key": key, "path": key} for key in files]
    return {"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": _READABLE}}


def base_mounts(cluster: MiniCluster, images: Images) -> list[dict[str, Any]]:
    """The mounts of every container in a pod with a broker.

    The keys are mounted only in the container with Flux.
    """
    return [
        {"name": names.HOME_VOLUME, "mountPath": names.HOME_MOUNT},
        *view_mounts(cluster, images),
        {"name": names.config_volume(cluster), "mountPath": names.CONFIG_MOUNT, "readOnly": True},
        {"name": names.SOFTWARE_VOLUME, "mountPath": names.SOFTWARE_MOUNT},
    ]


def view_mounts(cluster: MiniCluster, images: Images) -> list[dict[str, Any]]:
    """The mounts of the view: at `mountPath`, and at the path that its programs are built for."""
    volume = names.view_volume(cluster)
    view = cluster.flux.container
    paths = [view.mount_path if view else names.VIEW_ROOT]
    if not has_own_flux(cluster) and paths[0].rstrip("/") != names.VIEW_ROOT:
        paths.append(names.VIEW_ROOT)
    mounts: list[dict[str, Any]] = [{"name": volume, "mountPath": path} for path in paths]
    if images.as_volume and not has_own_flux(cluster):
        mounts.append(image_mount(names.VIEW_IMAGE_VOLUME))
    return mounts


def keys_mount(cluster: MiniCluster) -> dict[str, Any]:
    return {"name": names.keys_volume(cluster), "mountPath": names.KEYS_MOUNT, "readOnly": True}


def _source(volume: Volume) -> dict[str, Any]:
    """The source of a volume: the first one given, in the Flux Operator's order."""
    if volume.csi_driver:
        attributes = {"volumeAttributes": volume.csi_driver_attributes} if volume.csi_driver_attributes else {}
        return {"csi": {"driver": volume.csi_driver, **attributes}}
    if volume.secret_name:
        return {"secret": {"secretName": volume.secret_name}}
    if volume.empty_dir:
        medium = {"medium": "Memory"} if volume.empty_dir_medium.lower() == "memory" else {}
        limit = {"sizeLimit": volume.empty_dir_size_limit} if volume.empty_dir_size_limit else {}
        return {"emptyDir": {**medium, **limit}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.config_map_name:
        items = [{"key": key, "path": path} for key, path in volume.items.items()]
        return {"configMap": {"name": volume.config_map_name, **({"items": items} if items else {})}}
    return {"persistentVolumeClaim": {"claimName": volume.claim_name}}


def _mount(name: str, volume: Volume) -> dict[str, Any]:
    path = volume.path or ("/dev/shm" if volume.empty_dir else "")
    return {"name": name, "mountPath": path, **({"readOnly": True} if volume.read_only else {})}
