"""Builds the Kubernetes objects of a MiniCluster: pure functions of its fields.

The operator applies the objects of `desired`, and `headrace mini manifests` prints them. An object has no field at the
API server's default, so that server-side apply owns only the fields that differ.
Source: the API reference of Kubernetes 1.34; names and labels are those of the Flux Operator (see `names`).
"""

from __future__ import annotations

from typing import Any

from ...api.fields import MiniCluster
from ...api.pod_plan import PLAN_FILE, encode, make_pod_plan
from .. import names
from ..keys import Keys, secret
from ..objects import owned
from .images import Images, has_own_flux, view_image
from .jobs import failure_policy, group_job, job
from .own_flux import scripts
from .pods import services_pod
from .services import network, sidecars

__all__ = ["Images", "desired", "failure_policy", "has_own_flux", "view_image"]


def desired(
    cluster: MiniCluster,
    *,
    uid: str,
    images: Images,
    keys: Keys | None,
    cluster_domain: str = "cluster.local",
    size: int | None = None,
    known_hosts: str = "",
) -> list[dict[str, Any]]:
    """All objects of a valid MiniCluster, in the order of creation: pods after the objects that they need.

    `uid` is the MiniCluster's; with "" there are no owner references. If `keys` is None there is no Secret, because the
    operator makes it only once. `cluster_domain` is the DNS domain of the Kubernetes cluster. `size` is the number of
    pods of the MiniCluster's own Job, if it differs from `spec.size`. `known_hosts` is the hostlist of the running
    instance, whose hosts keep their ranks.
    """
    if has_own_flux(cluster):
        data = scripts(cluster, cluster_domain)
    else:
        data = {PLAN_FILE: encode(make_pod_plan(cluster, domain=cluster_domain, known_hosts=known_hosts))}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned(cluster, names.config_map(cluster), uid),
        "data": data,
    }
    objects = [config_map]
    if keys:
        objects.append(secret(cluster, keys, uid=uid))
    objects += [network(cluster, uid), *sidecars(cluster, uid)]
    if cluster.spec.services and not cluster.spec.suspend:
        objects.append(services_pod(cluster, uid))
    objects.append(job(cluster, images, uid=uid, size=cluster.spec.size if size is None else size))
    objects += [group_job(cluster, one, images, uid=uid, size=one.size) for one in cluster.spec.groups]
    return objects
