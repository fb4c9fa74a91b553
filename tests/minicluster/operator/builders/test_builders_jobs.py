"""Jobs and Services as they are built: how a MiniCluster ends, and which pods a name stands for."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import built, job_of, minicluster


def test_the_leads_code_fails_the_job_and_disruptions_are_not_counted() -> None:
    ignored, fails = job_of(minicluster())["spec"]["podFailurePolicy"]["rules"]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert fails["action"] == "FailJob"
    # A pod of any index may be killed: its code is not the job's.
    assert fails["onExitCodes"] == {"containerName": "sample", "operator": "NotIn", "values": [0, 137, 143]}


def test_success_is_the_leads_alone() -> None:
    assert job_of(minicluster())["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


def test_containers_that_restart_in_place_have_no_failure_policy() -> None:
    spec = job_of(minicluster(pod={"restartPolicy": "OnFailure"}))["spec"]
    assert "podFailurePolicy" not in spec and "podReplacementPolicy" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_rules_of_the_file_replace_ours() -> None:
    rules = [{"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}}]
    assert job_of(minicluster(podFailurePolicy={"rules": rules}))["spec"]["podFailurePolicy"] == {"rules": rules}


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({}, "backoffLimit", 100),
        ({"backoffLimit": 0}, "backoffLimit", 0),
        ({"backoffLimit": 3}, "backoffLimit", 3),
        ({}, "activeDeadlineSeconds", 31_500_000),
        ({"deadlineSeconds": 0}, "activeDeadlineSeconds", None),
        ({"suspend": True}, "suspend", True),
        ({}, "suspend", False),
    ],
)
def test_limits_of_the_job_are_the_files(given: dict[str, Any], field: str, value: object) -> None:
    assert job_of(minicluster(**given))["spec"].get(field) == value


def test_a_suspended_cluster_has_no_services_pod() -> None:
    services = [{"name": "db", "image": "postgres:16"}]
    assert "Pod/sample-services" in built(minicluster(services=services))
    assert "Pod/sample-services" not in built(minicluster(services=services, suspend=True))


def test_labels_of_the_file_are_the_jobs_and_do_not_reach_the_pods() -> None:
    job = job_of(minicluster(jobLabels={"kueue.x-k8s.io/queue-name": "q"}))
    assert job["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "q",
        "app.kubernetes.io/managed-by": "headrace",
    }
    assert "kueue.x-k8s.io/queue-name" not in job["spec"]["template"]["metadata"]["labels"]


def test_labels_that_selectors_go_by_cannot_be_overridden() -> None:
    labels = {"app.kubernetes.io/name": "mine", "hpa-selector": "mine", "team": "x"}
    found = job_of(minicluster(pod={"labels": labels}))["spec"]["template"]["metadata"]["labels"]
    assert (found["app.kubernetes.io/name"], found["hpa-selector"], found["team"]) == ("sample", "sample", "x")


def service(name: str, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = built(minicluster(**spec))[f"Service/{name}"]["spec"]
    return found


def test_the_service_gives_names_to_pods_that_are_not_ready() -> None:
    assert service("sample") == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": "sample"},
    }
    assert service("other", network={"headlessName": "other"})["clusterIP"] == "None"


def test_the_service_has_the_pods_of_groups_and_services_too() -> None:
    objects = built(minicluster(groups=[{"name": "g"}], services=[{"name": "db", "image": "x"}]))
    selector = objects["Service/sample"]["spec"]["selector"]
    pods = [objects[f"Job/{name}"]["spec"]["template"] for name in ("sample", "sample-g")]
    for one in (*pods, objects["Pod/sample-services"]):
        assert selector.items() <= one["metadata"]["labels"].items()


def test_a_minimal_service_is_the_leads_address() -> None:
    spec = service("sample", flux={"minimalService": True})
    assert "clusterIP" not in spec
    assert spec["selector"] == {"job-name": "sample", "batch.kubernetes.io/job-completion-index": "0"}
    assert [port["port"] for port in spec["ports"]] == [8050]


RUNNER = {"image": "debian:12", "command": "hostname", "runFlux": True, "ports": [22]}


def test_a_sidecar_with_ports_has_a_service_which_selects_its_pods_only() -> None:
    web = {"name": "web", "image": "nginx", "ports": [80, 443, 80]}
    containers = [RUNNER, web, {"name": "quiet", "image": "nginx"}]
    objects = built(minicluster(containers=containers, groups=[{"name": "g"}], services=[{"name": "db", "image": "x"}]))
    assert {name for name in objects if name.startswith("Service/")} == {"Service/sample", "Service/web"}
    spec = objects["Service/web"]["spec"]
    assert [(port["name"], port["port"], port["targetPort"]) for port in spec["ports"]] == [
        ("port-80", 80, 80),
        ("port-443", 443, 443),
    ]
    selector = spec["selector"].items()
    assert selector <= objects["Job/sample"]["spec"]["template"]["metadata"]["labels"].items()
    for one in (objects["Job/sample-g"]["spec"]["template"], objects["Pod/sample-services"]):
        assert not selector <= one["metadata"]["labels"].items()
