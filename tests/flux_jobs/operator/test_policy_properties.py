"""What holds for every Job that becomes a cluster."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from flux_jobs.operator.arbitrary_jobs import jobs
from headrace.flux_jobs.operator.policy import flux_job, original, refusals
from headrace.flux_jobs.read.job import read
from headrace.k8s.objects.quantities import quantity
from headrace.minicluster.operator.builders import Images

Document = dict[str, Any]

ID = "0123456789"
IMAGES = st.builds(Images, st.just("local/view:1"), st.booleans())


def pod_of(job: Document) -> Document:
    return dict(job["spec"]["template"]["spec"])


def others(job: Document) -> list[Document]:
    """The containers without the broker's."""
    chosen = read(original(job)).container
    return [one for one in pod_of(job)["containers"] if one["name"] != chosen]


def quality(pod: Document) -> str:
    """The quality of service of a pod whose containers alone have resources (core/v1 PodQOSClass)."""
    all_containers = [*pod.get("initContainers", []), *pod["containers"]]
    given = [one.get("resources") or {} for one in all_containers]
    limits, requests = ([one.get(kind) or {} for one in given] for kind in ("limits", "requests"))
    names = ("cpu", "memory")
    if not any(one.keys() & set(names) for one in (*limits, *requests)):
        return "BestEffort"
    whole = all(
        name in limit and quantity(request.get(name, limit[name])) == quantity(limit[name])
        for limit, request in zip(limits, requests)
        for name in names
    )
    return "Guaranteed" if whole else "Burstable"


def asked(pod: Document, kind: str, name: str) -> Fraction:
    """What a pod asks for at most at one time (effective requests): each init container with the sidecars before it,
    then all containers with all sidecars.
    """

    def of(container: Document) -> Fraction:
        given = container.get("resources") or {}
        value = (given.get(kind) or {}).get(name) or (given.get("limits") or {}).get(name)
        return quantity(value) if value else Fraction(0)

    most = beside = Fraction(0)
    for one in pod.get("initContainers", []):
        most = max(most, beside + of(one))
        beside += of(one) if one.get("restartPolicy") == "Always" else 0
    return max(most, beside + sum(of(one) for one in pod["containers"]))


@given(jobs(), IMAGES)
def test_a_job_is_made_a_cluster_once_and_nothing_is_changed_in_place(job: Document, images: Images) -> None:
    before = copy.deepcopy(job)
    assert refusals(job) == []
    once = flux_job(job, images, ID)
    assert job == before
    made = copy.deepcopy(once)
    assert flux_job(once, Images("other"), "f" * 10) == once == made
    original(once)
    assert once == made


@given(jobs(), IMAGES)
def test_the_original_of_a_cluster_reads_as_the_job_did(job: Document, images: Images) -> None:
    back = original(flux_job(job, images, ID))
    assert structs.replace(read(back), job={}) == structs.replace(read(job), job={})


@given(jobs(), IMAGES)
def test_what_a_cluster_does_not_need_stays_as_it_is(job: Document, images: Images) -> None:
    made = flux_job(job, images, ID)
    assert others(made) == others(job)
    placed = {"restartPolicy", "subdomain", "affinity", "initContainers", "containers", "volumes"}
    before, after = pod_of(job), pod_of(made)
    assert {key: one for key, one in after.items() if key not in placed} == {
        key: one for key, one in before.items() if key not in placed
    }
    for key in ("initContainers", "volumes"):
        assert [one for one in after.get(key, []) if one in before.get(key, [])] == before.get(key, [])
    assert after["subdomain"] == before.get("subdomain", f"headrace-{ID}")
    assert (
        made["metadata"]["annotations"] == job["metadata"]["annotations"] if "annotations" in job["metadata"] else True
    )
    assert len({one["name"] for one in after["volumes"]}) == len(after["volumes"])
    for one in after["containers"]:
        paths = [mount["mountPath"] for mount in one.get("volumeMounts", [])]
        assert len(set(paths)) == len(paths)


@given(jobs(), IMAGES)
def test_quality_of_service_and_what_pods_ask_for_stay(job: Document, images: Images) -> None:
    before, after = pod_of(job), pod_of(flux_job(job, images, ID))
    assert quality(after) == quality(before)
    for kind in ("limits", "requests"):
        for name in ("cpu", "memory", "nvidia.com/gpu"):
            assert asked(after, kind, name) == asked(before, kind, name)
