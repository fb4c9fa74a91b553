"""Which image brings the broker into a pod, and how."""

from __future__ import annotations

import re
from typing import NamedTuple

from ... import __version__
from ...minicluster.fields import MiniCluster, View

DEFAULT_VIEW = f"headrace-view:{__version__}"
# The Flux Operator's view images (`flux-view-ubuntu:tag-noble`, ...), also from a mirror of their registry.
_FLUX_VIEW = re.compile(r"(.*/)?flux-view-[a-z0-9-]+(:[^/]*)?(@.*)?\Z")


class Images(NamedTuple):
    """`view` is the view image. An init container copies the view, or, with `as_volume`, the kubelet mounts it.

    An API server where the feature ImageVolume is off (by default before Kubernetes 1.35) leaves image volumes out of
    pods without a word, so nothing but the installer's choice can turn `as_volume` on.
    """

    view: str = DEFAULT_VIEW
    as_volume: bool = False


def view_image(cluster: MiniCluster, images: Images) -> tuple[str, str]:
    """The view image of a MiniCluster, and the image that the file names and ours stands in for ("" where none does).

    An image that is not one of the Flux Operator's is taken as it is: a copy of ours under another name.
    """
    given = (cluster.flux.container or View()).image
    return (images.view, given) if _FLUX_VIEW.match(given) and not has_own_flux(cluster) else (given, "")


def has_own_flux(cluster: MiniCluster) -> bool:
    """Whether the pods run the Flux of their own image, without a view (`flux.container.disable`)."""
    return bool(cluster.flux.container and cluster.flux.container.disable)
