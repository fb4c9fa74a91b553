"""Merges of lists by the names of their items, compared with those of a real API server: a hundred random pairs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kubecluster.cluster import Cluster

from headrace.flux_jobs.read.field import Field
from headrace.flux_jobs.read.merging import MERGE_KEYS, patched, upserted
from seeds import seed

Object = dict[str, Any]
Make = Callable[[random.Random, str], Object]

PAIRS = 100
PODS = "/api/v1/namespaces/{}/podtemplates"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
NAMES = "abcdef"
OF_CONTAINERS = ("env", "ports", "volumeMounts", "volumeDevices")


def text(draw: random.Random) -> str:
    return draw.choice(("x", "y", "z/$(a)"))


def variable(draw: random.Random, name: str) -> Object:
    return {"name": name, "value": text(draw)}


def listed(draw: random.Random, key: str, least: int = 0) -> list[Object]:
    return [ITEMS[key](draw, name) for name in draw.sample(NAMES, draw.randint(least, 4))]


def container(draw: random.Random, name: str) -> Object:
    found: Object = {
        "name": name,
        "image": draw.choice(("debian:12", "busybox:1")),
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {"limits": {draw.choice(("cpu", "memory")): "1"}},
    }
    for key in OF_CONTAINERS:
        if draw.random() < 0.8:
            found[key] = listed(draw, key, 1)
    if draw.random() < 0.5:
        found["args"] = [text(draw) for _ in range(draw.randint(1, 3))]
    return found


# An item by its letter, for each list that is merged, with all that the API server would fill in.
ITEMS: dict[str, Make] = {
    "env": variable,
    "ports": lambda draw, name: {
        "containerPort": 80 + NAMES.index(name),
        "protocol": draw.choice(("TCP", "UDP")),
        **({"hostIP": "127.0.0.1"} if draw.random() < 0.5 else {}),
    },
    "volumeMounts": lambda draw, name: {"name": "files", "mountPath": f"/{name}", "subPath": draw.choice("st")},
    "volumeDevices": lambda draw, name: {"name": f"disk-{name}", "devicePath": f"/dev/{name}"},
    "volumes": lambda draw, name: {"name": name, "emptyDir": {"sizeLimit": draw.choice(("1Gi", "2Gi"))}},
    "imagePullSecrets": lambda _draw, name: {"name": name},
    "hostAliases": lambda draw, name: {
        "ip": f"10.0.0.{NAMES.index(name)}",
        "hostnames": draw.sample(["one", "two", "three"], 2),
    },
    "topologySpreadConstraints": lambda draw, name: {
        "topologyKey": name,
        "maxSkew": draw.randint(1, 3),
        "whenUnsatisfiable": "ScheduleAnyway",
        **({"labelSelector": {"matchLabels": {"app": name}}} if draw.random() < 0.5 else {}),
    },
    "schedulingGates": lambda _draw, name: {"name": f"example.org/{name}"},
    "resourceClaims": lambda _draw, name: {"name": name, "resourceClaimName": name},
    "containers": container,
    "initContainers": lambda draw, name: container(draw, f"init-{name}"),
}


def pod(draw: random.Random) -> Object:
    """The template of pods, or a patch of one."""
    spec: Object = {key: listed(draw, key, 1) for key in ITEMS if key not in OF_CONTAINERS}
    for key in draw.sample(sorted(set(spec) - {"containers", "volumes"}), 3):
        del spec[key]
    disks = [{"name": f"disk-{name}", "persistentVolumeClaim": {"claimName": text(draw)[0]}} for name in NAMES]
    spec["volumes"] += [{"name": "files", "emptyDir": {}}, *disks]
    spec["nodeSelector"] = {draw.choice(NAMES): text(draw)[0]}
    spec["tolerations"] = [{"key": name, "operator": "Exists"} for name in draw.sample(NAMES, 2)]
    spec["securityContext"] = {draw.choice(("runAsUser", "runAsGroup", "fsGroup")): draw.randint(1, 9)}
    return {"metadata": {"labels": {draw.choice(NAMES): "x"}}, "spec": spec}


def test_the_lists_are_those_that_the_api_server_merges(control_plane: Cluster) -> None:
    """Ephemeral containers are added to pods that run, not to their template."""
    definitions = control_plane.api.get("/openapi/v2")["definitions"]
    of_api = {
        key: field["x-kubernetes-patch-merge-key"]
        for kind in ("PodSpec", "Container")
        for key, field in definitions[f"io.k8s.api.core.v1.{kind}"]["properties"].items()
        if "x-kubernetes-patch-merge-key" in field
    }
    assert of_api == MERGE_KEYS
    assert of_api.keys() - ITEMS.keys() == {"ephemeralContainers"}


def test_a_strategic_merge_patch_is_that_of_the_api_server(control_plane: Cluster, namespace: str) -> None:
    draw, api, folder = random.Random(seed()), control_plane.api, PODS.format(namespace)
    for number in range(PAIRS):
        body = {"metadata": {"name": f"pods-{number}"}, "template": pod(draw)}
        before, patch = api.request("POST", folder, body)["template"], pod(draw)
        after = api.request("PATCH", f"{folder}/pods-{number}", {"template": patch}, STRATEGIC)["template"]
        assert patched(before, Field(patch)) == after, f"pair {number}"


def test_a_server_side_apply_keeps_the_places_of_an_upsert(control_plane: Cluster, namespace: str) -> None:
    """Trainer upserts the variables of a TrainJob and applies the JobSet by one manager, also over one that is there.
    Another manager's variables of the same names have the same places.
    """
    draw, api, folder = random.Random(seed()), control_plane.api, PODS.format(namespace)

    def apply(number: int, variables: list[Object], manager: str) -> list[Object]:
        spec = {"containers": [{"name": "node", "image": "debian:12", "env": variables}]}
        metadata = {"name": f"pods-{number}"}
        body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": {"spec": spec}}
        path = f"{folder}/{metadata['name']}?fieldManager={manager}&force=true"
        answer = api.request("PATCH", path, body, APPLY)
        stored: list[Object] = answer["template"]["spec"]["containers"][0]["env"]
        return stored

    for number in range(PAIRS):
        before, given = listed(draw, "env", 1), listed(draw, "env")
        merged = upserted(Field(before), Field(given))
        names = [one["name"] for one in before]
        apply(number, before, "runtime")
        known = [one for one in given if one["name"] in names]
        known.sort(key=lambda one: names.index(one["name"]))
        if known:
            assert apply(number, known, "other") == upserted(Field(before), Field(known)), f"pair {number}"
        assert apply(number, merged, "runtime") == merged, f"pair {number}"
