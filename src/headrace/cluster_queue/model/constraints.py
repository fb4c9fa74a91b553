"""The nodes that a pod may use, as a constraint (RFC 31) on properties of nodes. Pure.

A node has its labels as properties (`KEY=VALUE`, and `KEY`). Other conditions are tests. A test is a property whose
name states the condition, and the nodes that meet the condition have the property (`is_test`, `passes`). `KEY>NUMBER`
and `KEY<NUMBER` compare a label; `tolerates:TOLERATIONS` is true of nodes whose taints are all tolerated. Source:
Kubernetes 1.34, "Assigning Pods to Nodes", "Taints and Tolerations".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.k8s.objects.labels import check_labels

from .resources import Malformed

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TOLERATES = "tolerates:"
_NOTHING = "-"
# The effects of taints that keep pods away.
_REPELLING = ("NoSchedule", "NoExecute")
# Taints that repeat a node's readiness and its cordon.
_STATES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable")
# A constraint that no node satisfies.
_NOWHERE: Object = {"not": []}
# A whole number in a label as Kubernetes parses it (Go's strconv.ParseInt, 64 bits).
_WHOLE = re.compile(r"[-+]?[0-9]{1,64}", re.ASCII)
# A property that compares a label with a number. Names of labels contain neither `=`, `<` nor `>`.
_COMPARISON = re.compile(r"([^=<>]+)([<>])(-?[0-9]{1,64})", re.ASCII)
# The name of a node (RFC 1123).
_NODE = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", re.ASCII)


def constraint_of(spec: Object, with_taints: bool = True) -> Any:
    """The constraint on the nodes of a pod with this spec (core/v1 PodSpec); None for all nodes.

    `with_taints` says that there are nodes with taints. Raises Malformed for fields that the API server accepts in a
    template but not in a pod.
    """
    _check(spec.get("nodeSelector") or {}, "spec.nodeSelector")
    wanted = [f"{key}={value}" for key, value in sorted((spec.get("nodeSelector") or {}).items())]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    tolerated = _tolerated(spec.get("tolerations") or ()) if with_taints else None
    parts: list[Object] = [{"properties": wanted}] if wanted else []
    if affinity:
        parts.append(_any([_term(one) for one in affinity.get("nodeSelectorTerms") or ()]))
    if tolerated is not None:
        parts.append({"properties": [_TOLERATES + tolerated]})
    return _all(parts)


def together(constraints: Iterable[Any]) -> Any:
    """The conjunction of several constraints; None for none."""
    found: list[Object] = []
    for one in constraints:
        if one and one not in found:
            found.append(one)
    return _all(found)


def _all(parts: list[Object]) -> Any:
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else None


def _any(parts: list[Object]) -> Object:
    return {"or": parts} if len(parts) > 1 else parts[0] if parts else _NOWHERE


def _term(term: Object) -> Object:
    """A term of a node selector: the conjunction of its rules. A term without rules selects nothing."""
    rules = [_expression(one) for one in term.get("matchExpressions") or ()]
    rules += [_field(one) for one in term.get("matchFields") or ()]
    return _all(rules) or _NOWHERE


def _expression(rule: Object) -> Object:
    key, operator, values = rule["key"], rule["operator"], list(rule.get("values") or ())
    for value in values or [""]:
        _check({key: value}, "spec.affinity.nodeAffinity")
    if operator == "In":
        return _any([{"properties": [f"{key}={value}"]} for value in values])
    if operator == "NotIn":
        return {"properties": [f"^{key}={value}" for value in values]}
    if operator in ("Gt", "Lt") and len(values) == 1 and _number(values[0]) is not None:
        return {"properties": [f"{key}{'>' if operator == 'Gt' else '<'}{_number(values[0])}"]}
    return {"Exists": {"properties": [key]}, "DoesNotExist": {"properties": [f"^{key}"]}}.get(operator, _NOWHERE)


def _field(rule: Object) -> Object:
    """A rule about a field of a node; selectors support only the name."""
    names = {"hostlist": list(rule.get("values") or ())}
    if rule["key"] != "metadata.name" or rule["operator"] not in ("In", "NotIn"):
        return _NOWHERE
    for name in names["hostlist"]:
        if not _NODE.fullmatch(name):
            raise Malformed(f"spec.affinity.nodeAffinity: metadata.name: must be the name of a node, not {name!r}")
    return names if rule["operator"] == "In" else {"not": [names]}


def _number(text: object) -> int | None:
    number = int(str(text)) if _WHOLE.fullmatch(str(text)) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _check(labels: Mapping[str, str], path: str) -> None:
    """Check labels by the API server's rules. Raises Malformed."""
    for problem in check_labels(dict(labels), path):
        raise Malformed(str(problem))


def _tolerated(tolerations: Iterable[Object]) -> str | None:
    """Canonical text of tolerations: KEY[=VALUE][:EFFECT], comma-separated; None if all are tolerated."""
    found = set()
    for one in tolerations:
        key, effect = one.get("key") or "", one.get("effect") or ""
        if key in _STATES or effect == "PreferNoSchedule":
            continue
        if not key and not effect:
            return None
        exists = one.get("operator") == "Exists"
        if key:
            _check({key: "" if exists else one.get("value") or ""}, "spec.tolerations")
        value = "" if exists else f"={one.get('value') or ''}"
        found.add(f"{key}{value}{':' if effect else ''}{effect}")
    return ",".join(sorted(found)) or _NOTHING


def taints_of(node: Object) -> list[Object]:
    """The taints of a node that keep pods away, except those for a node that is not ready or cordoned."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return [one for one in taints if one.get("effect") in _REPELLING and one.get("key") not in _STATES]


def is_test(name: str) -> bool:
    """Whether a property is a test, which a node passes or fails. Other properties are labels and taints."""
    return name.startswith(_TOLERATES) or _COMPARISON.fullmatch(name) is not None


def passes(node: Object, test: str) -> bool:
    """Whether a node passes a test."""
    if test.startswith(_TOLERATES):
        tolerated = test[len(_TOLERATES) :].split(",")
        return all(any(_tolerates(one, taint) for one in tolerated) for taint in taints_of(node))
    compared = _COMPARISON.fullmatch(test)
    key, sign, bound = compared.groups() if compared else ("", "", "")
    number = _number((node["metadata"].get("labels") or {}).get(key))
    if number is None:
        return False
    return number > int(bound) if sign == ">" else number < int(bound)


def _tolerates(toleration: str, taint: Object) -> bool:
    rest, _, effect = toleration.partition(":")
    key, equal, value = rest.partition("=")
    return (
        toleration != _NOTHING
        and effect in ("", taint["effect"])
        and key in ("", taint["key"])
        and (not equal or value == (taint.get("value") or ""))
    )


def is_apart(spec: Object, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether pods with this spec avoid pods of the same namespace with these labels on their node."""
    terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED) or ()
    return any(_is_of_itself(term, namespace, labels) for term in terms)


def _is_of_itself(term: Object, namespace: str, labels: Mapping[str, str]) -> bool:
    is_here = _is_about(term, namespace)
    return term.get("topologyKey") == HOSTNAME and is_here and _selects(term.get("labelSelector"), labels)


def _is_about(term: Object, own: str) -> bool:
    """Whether a PodAffinityTerm of a pod applies to pods of the pod's own namespace.

    A nonempty namespace selector selects by the labels of namespaces, which are not known here.
    """
    names, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if selector is None:
        return not names or own in names
    return own in names or not (selector.get("matchLabels") or selector.get("matchExpressions"))


def _selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector (meta/v1) selects labels. None selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or ():
        key, operator, values = rule["key"], rule["operator"], rule.get("values") or ()
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(operator):
            return False
    return True


def left_to_scheduler(spec: Object, namespace: str, *labels: Mapping[str, str]) -> Iterator[str]:
    """The placement fields of a spec that no plan considers.

    kube-scheduler applies the required rules among them on the pod's node; the preferred ones have no effect. `labels`
    are those of the pods of the same job, which is in `namespace`.
    """
    affinity = spec.get("affinity") or {}
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        if rules.get(_PREFERRED):
            yield f"spec.affinity.{kind}.{_PREFERRED}"
        if kind == "nodeAffinity":
            continue
        required = rules.get(_REQUIRED) or ()
        of_itself = (any(_is_of_itself(one, namespace, own) for own in labels) for one in required)
        if required and (kind == "podAffinity" or not all(of_itself)):
            yield f"spec.affinity.{kind}.{_REQUIRED}"
    if spec.get("topologySpreadConstraints"):
        yield "spec.topologySpreadConstraints"
