"""Arbitrary MiniClusters: recorded documents in which a few fields, of any part of the schema, are set to other values.

A value is chosen by the field's type and name, mostly among those that could be right.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

import seeds
from headrace.cli.keygen import certificate
from headrace.minicluster.api.declarations import FieldType, Format, fields_of
from headrace.minicluster.api.fields import InvalidMiniCluster, MiniCluster, Record, Spec
from headrace.minicluster.api.validate import check

_CASES = Path(__file__).parents[2] / "data/minicluster/cases.jsonl"
DOCUMENTS = [json.loads(line)["document"] for line in _CASES.read_text(encoding="utf-8").splitlines()]

_LABELS = ["web", "a", "x-1", "9-lives", "sample", "flux-view", "web-services", "a" * 63]
_PATHS = [
    "/data",
    "/data/deep/",
    "/mnt/flux",
    "/mnt/flux/view",
    "/",
    "/dev/shm",
    "/opt/other",
    "relative",
    "/a:b",
    "/tmp",
]
_QUANTITIES = ["1", "500m", "1Gi", "0", "1.5", "2e3", "64Mi", "100"]
_STRANGE = [
    "",
    " ",
    "two words",
    "$(NAME)",
    "Ünï",
    "a\nb",
    "'",
    '"q"',
    "-",
    ".",
    "..",
    "a" * 64,
    "a" * 300,
    "x" * 70_000,
]
# By a field's name: what may well be right.
_KEYS = ["disk", "example.org/disk", "a.b", "A_b"]
_TEXTS: dict[str, list[str]] = {
    **{key: _LABELS for key in ("name", "headlessName", "secretName", "configMapName", "claimName", "imagePullSecret")},
    **{key: _PATHS for key in ("path", "hostPath", "mountPath", "workingDir", "logs", "pythonPath")},
    **{key: _KEYS for key in ("key", "csiDriver", "schedulerName", "runtimeClassName")},
    "image": ["debian:12", "local/x:1", "ghcr.io/a/flux-view-b:1", "UPPER", "a b", "x@sha256:00"],
    "imagePullPolicy": ["Always", "Never", "IfNotPresent", "Sometimes"],
    "restartPolicy": ["Never", "OnFailure", "Always"],
    "dnsPolicy": ["Default", "ClusterFirst", "None"],
    "emptyDirMedium": ["memory", "Memory", "HugePages", ""],
    "emptyDirSizeLimit": ["1Gi", "plenty", "64Mi", "-1"],
    "operator": ["Exists", "Equal", "In", "NotIn"],
    "effect": ["NoSchedule", "NoExecute", "Never"],
    "action": ["FailJob", "Ignore", "Count", "FailIndex"],
    "type": ["RuntimeDefault", "Localhost", "DisruptionTarget", "Unconfined"],
    "command": ["hostname", "echo 'a b'", "a\nb", "echo it's", ""],
    "postStartExec": ["touch /tmp/x", "echo 'a", "true"],
    "preStopExec": ["sleep 1", "true"],
    "hostlist": ["a,b-[0-3]", "x", "[", "a-[0-1],a-[0-1]"],
    "curveCert": ["text", certificate("c")],
    "brokerConfig": ["[access]\n", "x", "[bootstrap]\nhosts=[]\n"],
    "topology": ["kary:2", "binomial", "x"],
    "managedBy": ["flux-framework.org/headrace-operator", "kueue.x-k8s.io/multikueue"],
}
_NUMBERS = [0, 1, 2, 3, 5, 100, 65_535, 65_536, -1, 2**31 - 1]


def miniclusters(count: int, most: int = 4) -> Iterator[tuple[dict[str, Any], MiniCluster]]:
    """The valid ones of `count` arbitrary documents, with up to `most` fields changed each. Prints the seed."""
    dice = Random(seeds.seed())
    for _ in range(count):
        document = _document(dice, most)
        try:
            yield document, check(document)
        except InvalidMiniCluster:
            continue


def _document(dice: Random, most: int) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(dice.choice(DOCUMENTS))
    for _ in range(dice.randint(1, most)):
        _change(dice, document["spec"], Spec)
    if dice.random() < 0.05:
        document["metadata"]["name"] = dice.choice([*_LABELS, "b" * 55, "c" * 60])
    return document


def _change(dice: Random, value: dict[str, Any], record: type[Struct]) -> None:
    """Set one field of a record, or of one below it."""
    one = dice.choice(list(fields_of(record).values()))
    found, inner = value.get(one.name), one.type.item or one.type
    below: list[Any] = []
    if issubclass(inner.kind, Record):
        items = found.values() if isinstance(found, dict) and one.type.kind is dict else found
        below = list(items) if one.type.item and items else [found]
        below = [item for item in below if isinstance(item, dict)]
    if below and dice.random() < 0.85:
        _change(dice, dice.choice(below), inner.kind)
    elif one.name not in ("containers",):
        value[one.name] = _value(dice, one.type, one.name)


def _value(dice: Random, kind: FieldType, name: str) -> Any:
    if Format.QUANTITY in kind.marks:
        return dice.choice(_QUANTITIES)
    if kind.kind is list and kind.item:
        return [_value(dice, kind.item, name) for _ in range(dice.randint(0, 2))]
    if kind.kind is dict and kind.item:
        keys = ["cpu", "memory", "nvidia.com/gpu", "web", "data", "example.org/x", "A_B", "0"]
        return {key: _value(dice, kind.item, name) for key in dice.sample(keys, dice.randint(1, 2))}
    if kind.kind is bool:
        return dice.random() < 0.7
    if kind.kind is int:
        return dice.choice(_NUMBERS)
    if kind.kind is str:
        return dice.choice(_STRANGE if dice.random() < 0.1 else _TEXTS.get(name, _LABELS))
    out = {}
    for one in fields_of(kind.kind).values():
        if one.required or dice.random() < 0.3:
            out[one.name] = _value(dice, one.type, one.name)
    return out
