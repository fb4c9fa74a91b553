"""MiniClusters beside the recorded ones, for differences that no recording has.

Each is a recorded case with a few changes: of its document, and of the Flux Operator's objects, by which these become
what that operator makes of the changed document.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Derived:
    """Changes of the case `base`: values by their place, whose keys and indices are separated by spaces.

    The place in an object begins with KIND/NAME. With `pod_of` the services pod of another case is there, too.
    """

    name: str
    base: str
    document: dict[str, Any]
    objects: dict[str, Any] = field(default_factory=dict)
    pod_of: str = ""


_PLAIN = "variant-quiet"
_TEMPLATE = "Job/sample spec template spec"
_SERVICES = "variant-service-commands-init"
_NON_ROOT = {
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}

DERIVED = [
    Derived("backoff-limit-0", _PLAIN, {"spec backoffLimit": 0}),
    Derived(
        "affinity-disabled-two-labels",
        "variant-disable-affinity",
        {"spec pod nodeAffinity": {"pool": ["a", "b", "c"], "zone": ["z"]}},
    ),
    Derived(
        "life-cycle-with-arguments",
        _PLAIN,
        {"spec containers 0 lifeCycle": {"postStartExec": "touch /tmp/begun", "preStopExec": "sh -c 'sleep 1; sync'"}},
        {
            f"{_TEMPLATE} containers 0 lifecycle": {
                "postStart": {"exec": {"command": ["touch /tmp/begun"]}},
                "preStop": {"exec": {"command": ["sh -c 'sleep 1; sync'"]}},
            }
        },
    ),
    Derived(
        "empty-dir-medium-as-in-kubernetes",
        "variant-volume-emptydir",
        {"spec containers 0 volumes data emptyDirMedium": "Memory"},
    ),
    Derived(
        "own-flux-with-a-named-view",
        "disable-view",
        {
            "spec flux container name": "none-here",
            "spec flux container mountPath": "/opt/flux",
            "spec flux container resources": {"limits": {"cpu": "1"}},
        },
        {
            "ConfigMap/flux-sample-entrypoint data": {"curve.cert": True, "none-here": True, "wait-0": True},
            "Job/flux-sample spec template spec initContainers 0 name": "none-here",
            "Job/flux-sample spec template spec initContainers 0 resources": {"limits": {"cpu": "1"}},
            "Job/flux-sample spec template spec initContainers 0 volumeMounts 1": {
                "mountPath": "/opt/flux",
                "name": "none-here",
            },
            "Job/flux-sample spec template spec containers 0 volumeMounts 1": {
                "mountPath": "/opt/flux",
                "name": "none-here",
            },
            "Job/flux-sample spec template spec volumes 2 name": "none-here",
            "Job/flux-sample spec template spec volumes 3 configMap items 1 key": "none-here",
        },
    ),
    Derived(
        "non-root",
        _PLAIN,
        {"spec containers 0 securityContext": _NON_ROOT},
        {f"{_TEMPLATE} containers 0 securityContext": _NON_ROOT},
    ),
    Derived(
        "services-pod-tolerations-user-and-pull-secret",
        _SERVICES,
        {
            "spec pod": {"tolerations": [_TOLERATION], "securityContext": {"runAsUser": 1000, "fsGroup": 1000}},
            "spec services 0 imagePullSecret": "of-the-service",
        },
        {f"{_TEMPLATE} tolerations": [_TOLERATION], f"{_TEMPLATE} securityContext": {"fsGroup": 1000}},
    ),
    Derived(
        "sidecar-service-beside-services",
        "variant-sidecar-nowrap",
        {"spec services": [{"name": "s", "image": "nginx:1"}]},
        pod_of=_SERVICES,
    ),
    Derived(
        "volume-of-an-earlier-container",
        "variant-sidecar-commands-quiet",
        {"spec containers 0 volumes": {"data": {"claimName": "c", "path": "/data"}}},
        {
            f"{_TEMPLATE} containers 0 volumeMounts 4": {"mountPath": "/data", "name": "data"},
            f"{_TEMPLATE} containers 1 volumeMounts 4": {"mountPath": "/data", "name": "data"},
            f"{_TEMPLATE} volumes 4": {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        },
    ),
    Derived(
        "one-key-for-two-volumes",
        "variant-sidecar-commands-quiet",
        {
            "spec containers 0 volumes": {"data": {"claimName": "c", "path": "/data"}},
            "spec containers 1 volumes": {"data": {"claimName": "d", "path": "/data"}},
        },
        {
            f"{_TEMPLATE} containers 0 volumeMounts 4": {"mountPath": "/data", "name": "data"},
            f"{_TEMPLATE} containers 1 volumeMounts 4": {"mountPath": "/data", "name": "data"},
            f"{_TEMPLATE} volumes 4": {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        },
    ),
    Derived(
        "users-own-managed-by",
        "variant-pod-metadata",
        {
            "spec pod labels app.kubernetes.io/managed-by": "Helm",
            "spec jobLabels": {"app.kubernetes.io/managed-by": "Helm"},
        },
        {
            "Job/sample metadata labels": {"app.kubernetes.io/managed-by": "Helm"},
            "Job/sample spec template metadata labels app.kubernetes.io/managed-by": "Helm",
        },
    ),
    Derived(
        "two-ports-of-a-sidecar",
        "variant-sidecar-nowrap",
        {"spec containers 1 ports": [80, 8080]},
        {
            f"{_TEMPLATE} containers 1 ports": [
                {"containerPort": 80, "protocol": "TCP"},
                {"containerPort": 8080, "protocol": "TCP"},
            ],
            "Service/web spec ports": [
                {"port": 80, "protocol": "TCP", "targetPort": 80},
                {"port": 8080, "protocol": "TCP", "targetPort": 8080},
            ],
        },
    ),
]


def document_of(derived: Derived, documents: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(documents[derived.base])
    for place, value in derived.document.items():
        _put(found, place.split(), value)
    return found


def case_of(derived: Derived, cases: dict[str, Any]) -> dict[str, Any]:
    """The case in the form of the recorded ones."""
    case: dict[str, Any] = {**copy.deepcopy(cases[derived.base]), "name": derived.name}
    objects = {f"{one['kind']}/{one['metadata']['name']}": one for one in case["objects"]}
    for place, value in derived.objects.items():
        name, *keys = place.split()
        _put(objects[name], keys, value)
    if derived.pod_of:
        pod = next(one for one in cases[derived.pod_of]["objects"] if one["kind"] == "Pod")
        case["objects"].append(json.loads(json.dumps(pod).replace(f'"{derived.pod_of}"', f'"{case["namespace"]}"')))
    return case


def _put(target: Any, keys: list[str], value: Any) -> None:
    """Sets the value at a place, whose mappings are made; an index one beyond a list's end adds to it."""
    *above, last = keys
    for key in above:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    if isinstance(target, list):
        target[int(last) : int(last) + 1] = [value]
    else:
        target[last] = value
