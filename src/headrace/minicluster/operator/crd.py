"""The CustomResourceDefinition of MiniClusters, made from `minicluster.fields`. Pure.

Types, defaults, required fields and bounds come from the records. This file adds the rules that compare fields with
each other (CEL), and the status, which users do not write. A rule is CEL if its worst case fits the API server's cost
budget; the admission webhook (`admission`) checks the other rules. The messages are those of `minicluster.validate`,
which has every rule. Source: apiextensions.k8s.io/v1 (structural schema, x-kubernetes-validations), Kubernetes 1.34.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from headrace.k8s.objects.problems import LABEL_RULE

from ..api.field_docs import DESCRIPTIONS
from ..api.fields import KIND, MOST_CONTAINERS, MOST_GROUPS, QUANTITY, Bursting, Container, Flux, Group, Record, Spec

GROUP = "flux-framework.org"
VERSION = "v1alpha2"
PLURAL = "miniclusters"
NAME = f"{PLURAL}.{GROUP}"

Schema = dict[str, Any]


class Rule(NamedTuple):
    """A CEL rule of an object: `field` is the path below the object that the error names.

    Messages are constant: a message with a number in it would exceed the cost budget, since the API server assumes that
    text made of a number is as long as a whole request.
    """

    rule: str
    message: str
    field: str = ""


# Holds if a field is absent or false.
_UNSET = "(!has(self.{0}) || !self.{0})"
_RULES: dict[type[Record], tuple[Rule, ...]] = {
    Spec: (
        Rule(
            "!has(self.maxSize) || self.maxSize == 0 || self.maxSize >= self.size",
            "must not be below spec.size: a larger size needs a larger maxSize first (kubectl patch minicluster NAME"
            ' --type=merge -p \'{"spec": {"maxSize": N}}\')',
            ".maxSize",
        ),
        Rule("!has(self.minSize) || self.minSize <= self.size", "must not be above spec.size", ".minSize"),
        Rule(
            "!has(self.autoscale) || self.autoscale.minSize <= self.size"
            " || (has(self.maxSize) && self.autoscale.minSize <= self.maxSize)",
            "must not be above the largest size (maxSize, else size)",
            ".autoscale.minSize",
        ),
        Rule(
            "!has(self.autoscale) || !has(self.minSize) || self.autoscale.minSize >= self.minSize",
            "must not be below spec.minSize",
            ".autoscale.minSize",
        ),
        Rule(
            "size(self.containers) <= 1 || self.containers.exists_one(one, has(one.runFlux) && one.runFlux)",
            "exactly one of several containers must have runFlux: true",
            ".containers",
        ),
    ),
    Container: (
        Rule(f"{_UNSET.format('launcher')} || {_UNSET.format('batch')}", "cannot be combined with batch", ".launcher"),
    ),
    Flux: (
        Rule(
            r"!has(self.connectTimeout) || self.connectTimeout.matches('^([0-9]*\\.?[0-9]+(ms|s|m|h|d)?)?$')",
            "must be a duration such as 5s or 1m",
            ".connectTimeout",
        ),
    ),
    Bursting: (
        Rule(
            "!has(self.hostlist) || self.hostlist == '' || !has(self.clusters) || size(self.clusters) == 0",
            "cannot be combined with hostlist, which names all hosts",
            ".clusters",
        ),
    ),
    Group: (
        Rule(
            "!has(self.maxSize) || self.maxSize == 0 || self.maxSize >= self.size",
            "must not be below the group's size",
            ".maxSize",
        ),
    ),
}
_NAME_RULE = Rule(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    f"metadata.name cannot name hosts: {LABEL_RULE}; the first must be a letter",
)
# Further keys of a schema by record and attribute: the bounds of lists.
_LISTS: dict[tuple[type[Record], str], Schema] = {
    (Spec, "containers"): {"minItems": 1, "maxItems": MOST_CONTAINERS},
    (Spec, "services"): {"maxItems": MOST_CONTAINERS},
    (Spec, "groups"): {
        "maxItems": MOST_GROUPS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
}


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition, as an object to apply."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["mc"],
        "categories": ["all", "flux"],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.size",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": _columns(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _columns() -> list[dict[str, Any]]:
    columns = [
        ("Phase", "string", ".status.phase", 0),
        ("Ready", "string", ".status.ready", 0),
        ("Size", "integer", ".spec.size", 0),
        ("Exit", "integer", ".status.exitCode", 0),
        ("Reason", "string", ".status.reason", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ]
    return [{"name": name, "type": kind, "jsonPath": path, "priority": level} for name, kind, path, level in columns]


def _root() -> Schema:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _record(Spec),
        "status": _status(),
    }
    return {
        "type": "object",
        "description": "An HPC cluster of pods: one Flux instance and the job that it runs.",
        "properties": properties,
        "x-kubernetes-validations": _validations((_NAME_RULE,)),
    }


def _validations(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    found = []
    for one in rules:
        keys = {"rule": one.rule, "message": one.message}
        found.append({**keys, "fieldPath": one.field} if one.field else keys)
    return found


def _record(record: type[Record]) -> Schema:
    hints = get_type_hints(record, include_extras=True)
    properties: Schema = {}
    required = []
    for one in msgspec.structs.fields(record):
        description = DESCRIPTIONS[f"{record.__name__}.{one.encode_name}"]
        schema = {"description": description, **_schema(hints[one.name]), **_LISTS.get((record, one.name), {})}
        if not one.required and one.default_factory is msgspec.NODEFAULT and one.default:
            schema["default"] = one.default
        properties[one.encode_name] = schema
        if one.required:
            required.append(one.encode_name)
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = sorted(required)
    if _RULES.get(record):
        found["x-kubernetes-validations"] = _validations(_RULES[record])
    return found


def _schema(hint: Any) -> Schema:
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        return _schema(next(one for one in get_args(hint) if one is not NoneType))
    if origin is Annotated:
        kind, mark = get_args(hint)
        if mark.title == "quantity":
            return _quantity()
        form = {"type": "integer", "format": "int64"} if mark.title == "int64" else _schema(kind)
        return {**form, **(mark.extra_json_schema or {})}
    if origin is list:
        return {"type": "array", "items": _schema(get_args(hint)[0]), "x-kubernetes-list-type": "atomic"}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(get_args(hint)[1])}
    if isinstance(hint, type) and issubclass(hint, Record):
        return _record(hint)
    scalars: dict[Any, Schema] = {
        int: {"type": "integer", "format": "int32"},
        bool: {"type": "boolean"},
        str: {"type": "string"},
    }
    return dict(scalars[hint])


def _quantity() -> Schema:
    pattern = "^" + QUANTITY.pattern.removesuffix(r"\Z") + "$"
    kinds = [{"type": "integer"}, {"type": "string"}]
    return {"anyOf": kinds, "pattern": pattern, "x-kubernetes-int-or-string": True}


# --- status


def _status() -> Schema:
    text: Schema = {"type": "string"}
    time: Schema = {"type": "string", "format": "date-time"}
    count: Schema = {"type": "integer", "format": "int32"}
    properties = {
        "phase": {
            **text,
            "description": "Pending, Starting, Running, Suspended, Finished, Failed or Invalid.",
        },
        "reason": {**text, "description": "Why the MiniCluster is in this phase, for people."},
        "ready": {**text, "description": "Pods whose broker is up, and pods wanted, such as 3/4."},
        "brokersUp": {**count, "description": "Brokers that are up."},
        "jobs": {
            "type": "object",
            "additionalProperties": count,
            "description": "Jobs by state (RFC 21): depend, priority, sched, run, cleanup, inactive.",
        },
        "demandNodes": {**count, "description": "Nodes that running and pending jobs need, while the lead runs."},
        "idleSince": {**time, "description": "Since when no job has been active; absent while one is."},
        "exitCode": {**count, "description": "Exit code of the lead, once it has ended."},
        "podFailures": {
            **count,
            "description": "Failures of pods that count towards spec.backoffLimit, of all Jobs so far.",
        },
        "restartAt": {**time, "description": "When all pods start anew, after the loss of a lead."},
        "times": {"type": "object", "additionalProperties": time, "description": "When each phase was reached."},
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation this status is of.",
        },
        "size": {**count, "description": "Pods asked of the Job; what the scale subresource reports."},
        "maximumSize": {**count, "description": "The largest size that the brokers know hosts for."},
        "selector": {**text, "description": "Selects the pods, for a HorizontalPodAutoscaler."},
        "jobid": {**text, "description": "Always empty; kept for readers of the Flux Operator's status."},
        "conditions": {
            "type": "array",
            "items": _condition(),
            "x-kubernetes-list-type": "atomic",
            "description": "What holds of the MiniCluster (metav1.Condition).",
        },
    }
    required = ["jobid", "maximumSize", "selector", "size"]
    return {"type": "object", "properties": properties, "required": required}


def _condition() -> Schema:
    """The schema of metav1.Condition."""
    label = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    domain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    properties: Schema = {
        "type": {"type": "string", "maxLength": 316, "pattern": f"^({domain}/)?({label})$"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
    }
    required = ["lastTransitionTime", "message", "reason", "status", "type"]
    return {"type": "object", "properties": properties, "required": required}
