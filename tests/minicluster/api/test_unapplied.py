"""What one machine cannot honour is listed, and nothing else."""

from __future__ import annotations

from typing import Any

from headrace.minicluster.api.unapplied import not_applied, without_effect
from headrace.minicluster.api.validate import check


def listed(spec: dict[str, Any]) -> list[str]:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    return not_applied(check({**head, "spec": spec}))


def test_fields_that_are_honoured_or_not_given_are_not_listed() -> None:
    container = {"command": "x", "environment": {"A": "b"}, "commands": {"pre": "y"}, "runFlux": True}
    flux = {"optionFlags": "-o x", "topology": "kary:2", "brokerConfig": "[tbon]", "submitCommand": "flux run"}
    assert listed({"containers": [container], "size": 2, "tasks": 2, "flux": flux, "logging": {"quiet": True}}) == []


def test_images_volumes_and_pod_settings_are_listed_by_path() -> None:
    volumes = {"v": {"hostPath": "/a", "path": "/b"}}
    spec = {
        "size": 2,
        "maxSize": 3,
        "pod": {"labels": {"a": "b"}},
        "flux": {"wrap": "strace", "container": {"image": "x"}},
        "containers": [
            {"runFlux": True, "image": "i", "volumes": volumes, "resources": {"limits": {"cpu": 1}}},
            {"name": "web"},
        ],
        "services": [{"name": "db"}],
        "logging": {"zeromq": True},
    }
    assert sorted(listed(spec)) == [
        "spec.containers[0].image",
        "spec.containers[0].resources",
        "spec.containers[0].volumes",
        "spec.containers[1] (web)",
        "spec.flux.container",
        "spec.flux.wrap",
        "spec.maxSize",
        "spec.pod",
        "spec.services[0] (db)",
    ]


def test_added_fields_that_need_pods_are_listed() -> None:
    spec = {"suspend": True, "ttlSecondsAfterFinished": 5, "groups": [{"name": "gpu"}], "ignoreFailure": True}
    autoscale = {"autoscale": {}, "managedBy": "a.b/c"}
    assert sorted(listed({"containers": [{"command": "x"}], **spec, **autoscale})) == [
        "spec.autoscale",
        "spec.groups[0] (gpu)",
        "spec.managedBy",
        "spec.suspend",
        "spec.ttlSecondsAfterFinished",
    ]


def test_what_another_field_leaves_without_effect_is_listed_with_the_reason() -> None:
    config = "[bootstrap]\nhosts = []\n[resource]\nexclude = '0'\n[tbon]\n"
    flux = {"brokerConfig": config, "scheduler": {"queuePolicy": "easy"}, "submitCommand": "x", "optionFlags": "-x"}
    placement = ["spec.flux.brokerConfig [bootstrap]", "spec.flux.brokerConfig [resource]"]
    replaced = "spec.flux.scheduler (brokerConfig replaces it)"
    runner = {"command": "x", "launcher": True, "commands": {"servicePre": "x"}}
    assert listed({"containers": [runner], "flux": flux}) == [
        "spec.containers[0].commands.servicePre",
        *placement,
        replaced,
        "spec.flux.submitCommand (a launcher submits by itself)",
        "spec.flux.optionFlags (a launcher submits by itself)",
    ]
    batch = [*placement, replaced, "spec.flux.submitCommand (a batch is submitted by flux batch)"]
    assert listed({"containers": [{"command": "x", "batch": True}], "flux": flux}) == batch
    simple = {"scheduler": {"simple": True, "queuePolicy": "fcfs"}}
    assert listed({"containers": [{"command": "x"}], "flux": simple}) == ["spec.flux.scheduler.simple"]


def test_an_archive_that_goes_with_its_pod_is_told() -> None:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}

    def told(path: str, volume: dict[str, Any]) -> list[str]:
        spec = {"containers": [{"command": "x", "volumes": {"v": volume}}], "archive": {"path": path}}
        return without_effect(check({**head, "spec": spec}))

    claim = {"claimName": "data", "path": "/state"}
    assert told("/state/deep/a.tar", claim) == []
    for path, volume in (
        ("/states/a.tar", claim),
        ("/a.tar", claim),
        ("/state/a.tar", {"emptyDir": True, "path": "/state"}),
    ):
        (line,) = told(path, volume)
        assert line.startswith("spec.archive.path: lies in no volume that outlasts the lead's pod")
