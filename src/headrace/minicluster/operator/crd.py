"""The CustomResourceDefinition of MiniClusters, made from `api.fields` and `api.comparisons`. Pure.

This file adds the status, which users do not write. The admission webhook (`admission`) checks the rules that the
definition cannot express. Source: apiextensions.k8s.io/v1 (structural schema, x-kubernetes-validations), Kubernetes
1.34.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.problems import LABEL_RULE

from ..api.comparisons import COMPARISONS
from ..api.declarations import Bounds, Field, FieldType, Format, Items, Length, OneOf, StoredDefault, fields_of
from ..api.fields import KIND, QUANTITY, Record, Spec

GROUP = "flux-framework.org"
VERSION = "v1alpha2"
PLURAL = "miniclusters"
NAME = f"{PLURAL}.{GROUP}"

Schema = dict[str, Any]

_TYPES: dict[type, str] = {int: "integer", bool: "boolean", str: "string", list: "array", dict: "object"}


_NAME_RULE = {
    "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": f"metadata.name cannot name hosts: {LABEL_RULE}; the first must be a letter",
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
        "description": "An HPC cluster of pods: one Flux instance and its job.",
        "properties": properties,
        "x-kubernetes-validations": [_NAME_RULE],
    }


def _record(record: type[Record]) -> Schema:
    fields = fields_of(record)
    found: Schema = {"type": "object", "properties": {name: _field(one) for name, one in fields.items()}}
    required = sorted(name for name, one in fields.items() if one.required)
    if required:
        found["required"] = required
    rules = COMPARISONS.get(record, ())
    if rules:
        found["x-kubernetes-validations"] = [
            {"rule": one.cel, "message": one.message + one.advice, "fieldPath": one.path} for one in rules
        ]
    return found


def _field(one: Field) -> Schema:
    schema = {"description": one.text, **_schema(one.type)}
    return {**schema, "default": one.default} if one.constant and one.default else schema


def _schema(kind: FieldType) -> Schema:
    if Format.QUANTITY in kind.marks:
        pattern = "^" + QUANTITY.pattern.removesuffix(r"\Z") + "$"
        kinds = [{"type": "integer"}, {"type": "string"}]
        return {"anyOf": kinds, "pattern": pattern, "x-kubernetes-int-or-string": True}
    if issubclass(kind.kind, Record):
        return _record(kind.kind)
    schema: Schema = {"type": _TYPES[kind.kind]}
    if kind.kind is int:
        schema["format"] = "int64" if Format.INT64 in kind.marks else "int32"
    elif kind.kind is dict and kind.item:
        schema["additionalProperties"] = _schema(kind.item)
    elif kind.item:
        schema |= {"items": _schema(kind.item), "x-kubernetes-list-type": "atomic"}
    for mark in kind.marks:
        schema |= _constraint(mark)
    return schema


def _constraint(mark: Any) -> Schema:
    """The keywords of the schema for a mark."""
    if isinstance(mark, StoredDefault):
        return {"default": mark.value}
    if isinstance(mark, OneOf):
        return {"enum": ["", *mark.choices] if mark.optional else list(mark.choices)}
    if isinstance(mark, Length):
        return {"maxLength": mark.most}
    if isinstance(mark, Bounds):
        return {"minimum": mark.least, **({} if mark.most is None else {"maximum": mark.most})}
    if isinstance(mark, Items):
        by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [mark.key]} if mark.key else {}
        return {**({"minItems": mark.least} if mark.least else {}), "maxItems": mark.most, **by_key}
    return {}


# --- status


_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "format": "int32"}


def _status() -> Schema:
    phases = "Pending, Starting, Running, Suspended, Finished, Failed or Invalid."
    counts, times = ({"type": "object", "additionalProperties": one} for one in (_COUNT, _TIME))
    conditions = {"type": "array", "items": _condition(), "x-kubernetes-list-type": "atomic"}
    jobs = "Jobs by state (RFC 21): depend, priority, sched, run, cleanup, inactive."
    failures = "Number of pod failures that count towards spec.backoffLimit, including those of former Jobs."
    rows: list[tuple[str, Schema, str]] = [
        ("phase", _TEXT, phases),
        ("reason", _TEXT, "Why the MiniCluster is in this phase."),
        ("ready", _TEXT, "The number of brokers that are up and the wanted number, such as 3/4."),
        ("brokersUp", _COUNT, "Number of brokers that are up."),
        ("jobs", counts, jobs),
        ("demandNodes", _COUNT, "Number of nodes that running and pending jobs need, while the lead runs."),
        ("idleSince", _TIME, "The time since which no job is active. Absent while a job is active."),
        ("exitCode", _COUNT, "Exit code of the lead, once it has ended."),
        ("podFailures", _COUNT, failures),
        ("restartAt", _TIME, "When all pods are recreated after the loss of a lead."),
        ("times", times, "When each phase was reached."),
        ("observedGeneration", {"type": "integer", "format": "int64"}, "The generation to which this status belongs."),
        ("size", _COUNT, "Number of pods that the Job should have; the scale subresource reports it."),
        ("maximumSize", _COUNT, "Number of hosts that the brokers know: the current limit of the size."),
        ("selector", _TEXT, "Selects the pods, for a HorizontalPodAutoscaler."),
        ("jobid", _TEXT, "Always empty; kept for readers of the Flux Operator's status."),
        ("conditions", conditions, "Conditions of the MiniCluster (metav1.Condition)."),
    ]
    properties = {name: {**schema, "description": text} for name, schema, text in rows}
    return {"type": "object", "properties": properties, "required": ["jobid", "maximumSize", "selector", "size"]}


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
