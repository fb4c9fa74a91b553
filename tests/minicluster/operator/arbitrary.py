"""Arbitrary MiniClusters: recorded documents in which a few fields, of any part of the schema, are set to other values.

A value is chosen by the field's type and name, mostly among those that could be right.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

import seeds
from headrace.cli.keygen import certificate
from headrace.minicluster.api.fields import MiniCluster, Record, Spec
from headrace.minicluster.api.problems import InvalidMiniCluster
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


def _change(dice: Random, value: dict[str, Any], record: type[Record]) -> None:
    """Set one field of a record, or of one below it."""
    hints = get_type_hints(record, include_extras=True)
    one = dice.choice(msgspec.structs.fields(record))
    hint, found = _plain(hints[one.name]), value.get(one.encode_name)
    inner = _plain(get_args(hint)[-1]) if get_origin(hint) in (list, dict) else hint
    below: list[Any] = []
    if isinstance(inner, type) and issubclass(inner, Record):
        items = found.values() if isinstance(found, dict) and get_origin(hint) is dict else found
        below = list(items) if get_origin(hint) in (list, dict) and items else [found]
        below = [item for item in below if isinstance(item, dict)]
    if below and dice.random() < 0.85:
        _change(dice, dice.choice(below), inner)
    elif one.encode_name not in ("containers",):
        value[one.encode_name] = _value(dice, hints[one.name], one.encode_name)


def _value(dice: Random, hint: Any, name: str) -> Any:
    title = getattr(get_args(hint)[1], "title", "") if get_origin(hint) is Annotated else ""
    hint = _plain(hint)
    if title == "quantity":
        return dice.choice(_QUANTITIES)
    if get_origin(hint) is list:
        return [_value(dice, get_args(hint)[0], name) for _ in range(dice.randint(0, 2))]
    if get_origin(hint) is dict:
        keys = ["cpu", "memory", "nvidia.com/gpu", "web", "data", "example.org/x", "A_B", "0"]
        return {key: _value(dice, get_args(hint)[1], name) for key in dice.sample(keys, dice.randint(1, 2))}
    if hint is bool:
        return dice.random() < 0.7
    if hint is int:
        return dice.choice(_NUMBERS)
    if hint is str:
        return dice.choice(_STRANGE if dice.random() < 0.1 else _TEXTS.get(name, _LABELS))
    out = {}
    hints = get_type_hints(hint, include_extras=True)
    for one in msgspec.structs.fields(hint):
        if one.required or dice.random() < 0.3:
            out[one.encode_name] = _value(dice, hints[one.name], one.encode_name)
    return out


def _plain(hint: Any) -> Any:
    """A hint without `None` and marks."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if NoneType in get_args(hint):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    return _plain(hint) if get_origin(hint) is Annotated else hint
