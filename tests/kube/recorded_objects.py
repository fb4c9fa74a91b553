"""Recorded objects of the Flux Operator, with its scripts byte for byte, made ready to be created again.

Changed are the images, which no registry serves here, and the keys, which the recording does not have; what the API
server had added (uids, addresses, labels and selectors of the Job) is left to it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zmq

Object = dict[str, Any]

_DATA = Path(__file__).parents[1] / "data/minicluster"
_ADDED = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


def recorded() -> dict[str, list[Object]]:
    """The objects of each recorded MiniCluster by its name, which is its namespace, too."""
    cases = [json.loads(line) for line in (_DATA / "objects.jsonl").read_text(encoding="utf-8").splitlines()]
    return {case["name"]: case["objects"] for case in cases}


def recorded_scripts() -> dict[str, dict[str, str]]:
    """The scripts of each recorded MiniCluster by the key that they have in its ConfigMap.

    A script is stored as the numbers of its lines (`0-6 3`) in the lines of all scripts.
    """
    stored = json.loads((_DATA / "scripts.json").read_text(encoding="utf-8"))
    lines = stored["lines"]

    def text(numbers: str) -> str:
        pairs = [part.partition("-") for part in numbers.split()]
        return "\n".join(line for first, _, last in pairs for line in lines[int(first) : int(last or first) + 1])

    return {name: {key: text(one) for key, one in scripts.items()} for name, scripts in stored["cases"].items()}


def certificate() -> str:
    """A fresh certificate of CURVE."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return f'curve\n    public-key = "{public}"\n    secret-key = "{secret}"\n'


def before_creation(one: Object, scripts: dict[str, str], view: str, images: dict[str, str]) -> Object:
    """A recorded object as its creator sent it, but for keys and images; `images` has ours by the recorded ones."""
    made: Object = json.loads(json.dumps(one))
    made["metadata"].pop("ownerReferences", None)
    if made["kind"] == "ConfigMap":
        made["data"] = {**scripts, "curve.cert": certificate()}
    elif made["kind"] == "Service":
        for field in ("clusterIPs", "ipFamilies", *(["clusterIP"] if made["spec"]["clusterIP"] == "ASSIGNED" else [])):
            made["spec"].pop(field, None)
    elif made["kind"] == "Job":
        del made["spec"]["selector"]
        for labels in (made["metadata"].get("labels", {}), made["spec"]["template"]["metadata"]["labels"]):
            for added in _ADDED:
                labels.pop(added, None)
        _set_images(made["spec"]["template"]["spec"], view, images)
    else:
        made["spec"].pop("nodeName", None)
        _set_images(made["spec"], view, images)
    return made


def _set_images(pod: Object, view: str, images: dict[str, str]) -> None:
    for one in pod.get("initContainers", ()):
        one.update(image=view, imagePullPolicy="IfNotPresent")
    for one in pod["containers"]:
        one.update(image=images[one["image"]], imagePullPolicy="IfNotPresent")
