"""The view in a pod: the image that provides the broker, and its copy or mount."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headrace.k8s.packaging.images import DEFAULT_VIEW

from ...api.fields import DEFAULT_VIEW_IMAGE, MiniCluster, View
from ...api.pod_plan import VIEW
from ..objects import without_unset

# The Flux Operator's view images (`flux-view-ubuntu:tag-noble`, ...), also from a mirror of their registry.
_FLUX_VIEW = re.compile(r"(.*/)?flux-view-[a-z0-9-]+(:[^/]*)?(@.*)?\Z")

# The command of the view's image, which copies the view.
_COPY = ("/headrace-copy", VIEW)
# The fields of a security context that identify the user and the confinement of a container's processes.
_IDENTITY = ("runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions", "seccompProfile")


class Images(NamedTuple):
    """The view image, and how pods get its files.

    An init container copies the view, or, with `as_volume`, the kubelet mounts the image. `as_volume` must be set by
    the installer and cannot be detected: an API server without the feature ImageVolume (off by default before
    Kubernetes 1.35) silently drops image volumes from pods.
    """

    view: str = DEFAULT_VIEW
    as_volume: bool = False


def view_image(cluster: MiniCluster, images: Images) -> tuple[str, str]:
    """The view image of a MiniCluster, and the Flux Operator's image that it replaces ("" for none).

    The Flux Operator's default image does not count as replaced, because the API server sets it if the file names no
    image. Any other image is used as it is: it is a copy of our view image under another name.
    """
    given = (cluster.flux.container or View()).image
    if not _FLUX_VIEW.match(given) or has_own_flux(cluster):
        return given, ""
    return images.view, "" if given == DEFAULT_VIEW_IMAGE else given


def has_own_flux(cluster: MiniCluster) -> bool:
    """Whether the pods run the Flux of their own image, without a view (`flux.container.disable`)."""
    return bool(cluster.flux.container and cluster.flux.container.disable)


def view_copy(
    name: str,
    image: str,
    mounts: list[dict[str, Any]],
    *,
    security_context: dict[str, Any],
    resources: dict[str, Any],
    pull_always: bool = False,
    working_dir: str = "",
) -> dict[str, Any]:
    """The init container that copies the view into the volume of `mounts`."""
    fields = {
        "name": name,
        "image": image,
        "command": list(_COPY),
        "imagePullPolicy": "Always" if pull_always else "IfNotPresent",
        "workingDir": working_dir,
        "resources": resources,
        "securityContext": security_context,
        "volumeMounts": mounts,
    }
    return without_unset(fields)


def least_privileged(given: dict[str, Any]) -> dict[str, Any]:
    """A security context with least privileges and the identity of the context `given`.

    If the other containers of a pod satisfy the `restricted` Pod Security Standard, so does a container with this
    context.
    """
    kept = {key: given[key] for key in _IDENTITY if given.get(key) is not None}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **kept}


def image_volume(name: str, view: str) -> dict[str, Any]:
    """A volume with the image of the view, for clusters whose kubelets mount images."""
    return {"name": name, "image": {"reference": view, "pullPolicy": "IfNotPresent"}}


def image_mount(name: str) -> dict[str, Any]:
    """The mount of an image volume, at the path that the view's programs are built for."""
    return {"name": name, "mountPath": VIEW, "subPath": "view", "readOnly": True}
