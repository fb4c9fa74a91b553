"""The objects of a MiniCluster as a whole; what is in a pod, a Job or a Service has a file of its own."""

from __future__ import annotations

import json

import pytest
from arbitrary import miniclusters
from clusters import built, job_of, minicluster

import sizes
from headrace.minicluster.api.fields import DEFAULT_VIEW_IMAGE
from headrace.minicluster.api.pod_plan import decode, make_pod_plan
from headrace.minicluster.operator.builders import Images, view_image


def test_hello_world_has_a_config_map_a_service_and_a_job_in_this_order() -> None:
    assert list(built(minicluster())) == ["ConfigMap/sample-entrypoint", "Service/sample", "Job/sample"]


def test_the_config_map_holds_what_pods_are_told() -> None:
    cluster = minicluster()
    data = built(cluster, cluster_domain="example.org")["ConfigMap/sample-entrypoint"]["data"]
    assert decode(data["plan.json"]) == make_pod_plan(cluster, domain="example.org")


SEVERAL = {
    "containers": [
        {"image": "debian:12", "command": "hostname", "runFlux": True},
        {"image": "nginx", "name": "web", "ports": [80]},
    ],
    "services": [{"image": "postgres:16", "name": "db"}],
    "groups": [{"name": "gpu", "size": 3}],
}


def test_every_object_is_owned_by_the_minicluster_and_says_who_manages_it() -> None:
    objects = built(minicluster(**SEVERAL))
    assert {"Service/web", "Pod/sample-services", "Job/sample-gpu"} <= set(objects)
    for one in objects.values():
        metadata = one["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["name"], owner["kind"]) == ("u-1", "sample", "MiniCluster")
        assert owner["controller"] is True and owner["blockOwnerDeletion"] is True
        assert metadata["namespace"] == "here"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "headrace"


def test_objects_without_an_operator_have_no_owner() -> None:
    assert not any("ownerReferences" in one["metadata"] for one in built(minicluster(**SEVERAL), uid="").values())


def test_the_size_of_the_job_can_differ_from_the_wanted_one() -> None:
    spec = job_of(minicluster(size=2, maxSize=8), size=5)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (5, 5)


FLUX_VIEWS = (
    "ghcr.io/converged-computing/flux-view-rocky:tag-9",
    "mirror.example:5000/x/flux-view-ubuntu@sha256:00",
    "flux-view-ubuntu",
)


@pytest.mark.parametrize("given", FLUX_VIEWS)
def test_our_view_stands_in_for_those_of_the_flux_operator(given: str) -> None:
    cluster = minicluster(flux={"container": {"image": given}})
    assert view_image(cluster, Images(view="view:1")) == ("view:1", given)


def test_our_view_stands_in_for_the_default() -> None:
    for flux in ({}, {"container": {"image": DEFAULT_VIEW_IMAGE}}):
        assert view_image(minicluster(flux=flux), Images(view="view:1")) == ("view:1", ""), "the file names none"
    other = DEFAULT_VIEW_IMAGE.replace("noble", "jammy")
    assert view_image(minicluster(flux={"container": {"image": other}}), Images(view="view:1")) == ("view:1", other)


@pytest.mark.parametrize("given", ["example.org/our-view:3", "example.org/flux-view-x/our-view:3"])
def test_another_image_is_a_view_of_ours(given: str) -> None:
    assert view_image(minicluster(flux={"container": {"image": given}}), Images(view="view:1")) == (given, "")


def test_objects_are_plain_json_and_the_same_each_time() -> None:
    texts = {json.dumps(built(minicluster(**SEVERAL))) for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.soak
def test_objects_can_be_made_of_every_valid_minicluster() -> None:
    """Made, and each name in a pod given once: to a volume, a container, a mount path."""
    made = 0
    for document, cluster in miniclusters(sizes.size("objects"), most=8):
        objects = built(cluster, images=Images(view="view:1", as_volume=made % 2 == 0))
        made += 1
        for one in objects.values():
            if one["kind"] != "Job":
                continue
            pod = one["spec"]["template"]["spec"]
            containers = [*pod["containers"], *pod.get("initContainers", ())]
            lists = [[item["name"] for item in items] for items in (containers, pod["volumes"])]
            lists += [[mount["mountPath"] for mount in item["volumeMounts"]] for item in containers]
            assert all(len(set(names)) == len(names) for names in lists), document
            used = {mount["name"] for item in containers for mount in item["volumeMounts"]}
            assert used <= set(lists[1]), document
    assert made > sizes.size("objects") // 8
