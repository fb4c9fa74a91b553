"""The image that provides the broker in a pod, and how its files get there."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.k8s.packaging.images import DEFAULT_VIEW

from ...api.fields import DEFAULT_VIEW_IMAGE, MiniCluster, View

# The Flux Operator's view images (`flux-view-ubuntu:tag-noble`, ...), also from a mirror of their registry.
_FLUX_VIEW = re.compile(r"(.*/)?flux-view-[a-z0-9-]+(:[^/]*)?(@.*)?\Z")


class Images(NamedTuple):
    """`view` is the view image. An init container copies the view, or, with `as_volume`, the kubelet mounts the image.

    An API server without the feature ImageVolume (off by default before Kubernetes 1.35) silently drops image volumes
    from pods, so that `as_volume` can only be the installer's choice.
    """

    view: str = DEFAULT_VIEW
    as_volume: bool = False


def view_image(cluster: MiniCluster, images: Images) -> tuple[str, str]:
    """The view image of a MiniCluster, and the image that its file names and ours replaces ("" for none, as where the
    file names none: the API server has put in the default).

    Any image other than the Flux Operator's is used as it is: it is a copy of ours under another name.
    """
    given = (cluster.flux.container or View()).image
    if not _FLUX_VIEW.match(given) or has_own_flux(cluster):
        return given, ""
    return images.view, "" if given == DEFAULT_VIEW_IMAGE else given


def has_own_flux(cluster: MiniCluster) -> bool:
    """Whether the pods run the Flux of their own image, without a view (`flux.container.disable`)."""
    return bool(cluster.flux.container and cluster.flux.container.disable)
