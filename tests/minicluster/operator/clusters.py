"""MiniClusters for the tests of what is made of them."""

from __future__ import annotations

from typing import Any

from headrace.minicluster.api.fields import API_VERSION, KIND, MiniCluster
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.builders import Images, desired

Object = dict[str, Any]


def minicluster(runner: Object | None = None, *, containers: list[Object] | None = None, **spec: Any) -> MiniCluster:
    """A valid MiniCluster `sample` of two pods in the namespace `here`: `runner` is merged into its container."""
    one = {"image": "debian:12", "command": "hostname", **(runner or {})}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "sample", "namespace": "here"},
        "spec": {"size": 2, "containers": containers or [one], **spec},
    }
    return check(document)


def built(cluster: MiniCluster, **options: Any) -> dict[str, Object]:
    """The objects of a cluster by KIND/NAME."""
    settings = {"uid": "u-1", "images": Images(view="view:1"), "keys": None, **options}
    objects = desired(cluster, **settings)
    named = {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}
    assert len(named) == len(objects)
    return named


def job_of(cluster: MiniCluster, **options: Any) -> Object:
    found: Object = built(cluster, **options)["Job/sample"]
    return found


def pod_of(cluster: MiniCluster, **options: Any) -> Object:
    """The pod specification of a cluster's Job."""
    found: Object = job_of(cluster, **options)["spec"]["template"]["spec"]
    return found


def runner_of(cluster: MiniCluster, **options: Any) -> Object:
    return next(one for one in pod_of(cluster, **options)["containers"] if one["name"] == "sample")
