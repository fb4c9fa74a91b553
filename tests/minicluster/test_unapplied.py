"""What one machine cannot honour is listed, and nothing else."""

from __future__ import annotations

from typing import Any

from headrace.minicluster.unapplied import not_applied
from headrace.minicluster.validate import check


def listed(spec: dict[str, Any]) -> list[str]:
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    return not_applied(check({**head, "spec": spec}))


def test_fields_that_are_honoured_or_not_given_are_not_listed() -> None:
    container = {"command": "x", "environment": {"A": "b"}, "commands": {"pre": "y"}, "launcher": True, "runFlux": True}
    flux = {"optionFlags": "-o x", "topology": "kary:2", "brokerConfig": "[a]"}
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
        "spec.logging.zeromq",
        "spec.maxSize",
        "spec.pod",
        "spec.services[0] (db)",
    ]
