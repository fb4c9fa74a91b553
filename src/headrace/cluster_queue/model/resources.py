"""Resources of pods, and jobspecs made of them. Pure.

A pod takes what kube-scheduler counts for it, so that planned pods can be bound. Amounts are whole numbers by the type
of the graph's vertices: cpu in thousandths of a core, memory and other bytes in MiB, both rounded up; `pod` is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from headrace.k8s.objects.conditions import condition
from headrace.k8s.objects.quantities import quantity

Object = dict[str, Any]
Amounts = Mapping[str, int]
"""Amounts by the type of the graph's vertices."""
_Exact = dict[str, Fraction]

_MIB = 2**20
_GPU = "nvidia.com/gpu"
# The resources that may be set for a whole pod (Kubernetes 1.34, "Pod-level resources"), beside huge pages.
_OF_PODS = ("cpu", "memory")


class Malformed(ValueError):
    """No queue accepts the object: the message names the field and the rule."""


def amounts_of(spec: Object, status: Object | None = None) -> dict[str, int]:
    """The amounts that a pod with this spec (core/v1 PodSpec) takes of its node.

    `status` is that of an existing pod, whose kubelet may not have carried out a resize yet. Raises Malformed. Source:
    Kubernetes 1.34, "Resource sharing within containers" (init and sidecar containers), "Pod Overhead", "Resize CPU and
    Memory Resources assigned to Containers".
    """
    found = _of_containers(spec, status or {})
    resources = spec.get("resources") or {}
    asked, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in {**asked, **limits}:
        if name in asked:
            found[name] = _value(name, asked[name])
        elif name not in found and (name in _OF_PODS or name.startswith("hugepages-")):
            found[name] = _value(name, limits[name])
    _add(found, _values(spec.get("overhead") or {}))
    taken = {type_of(name): ceil(_in_units(name, amount)) for name, amount in found.items() if is_counted(name)}
    return {**{kind: amount for kind, amount in taken.items() if amount > 0}, "pod": 1}


def _of_containers(spec: Object, status: Object) -> _Exact:
    """The amounts of a pod's containers.

    Containers run together with the sidecars. Init containers run one by one, each with the sidecars started before it.
    """
    keeps = condition(status, "PodResizePending").get("reason") == "Infeasible"
    found: _Exact = {}
    statuses = _by_name(status.get("containerStatuses"))
    for one in spec.get("containers") or ():
        _add(found, _of_container(one, statuses.get(one.get("name")), keeps))
    sidecars: _Exact = {}
    highest: _Exact = {}
    statuses = _by_name(status.get("initContainerStatuses"))
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":
            asked = _of_container(one, statuses.get(one.get("name")), keeps)
            _add(found, asked)
            _add(sidecars, asked)
            _raise(highest, sidecars)
        else:
            asked = dict(sidecars)
            _add(asked, _of_container(one, None, False))
            _raise(highest, asked)
    _raise(found, highest)
    return found


def _by_name(statuses: list[Object] | None) -> dict[Any, Object]:
    return {one.get("name"): one for one in statuses or ()}


def _of_container(container: Object, status: Object | None, keeps: bool) -> _Exact:
    """The amounts that a container requests or has, whichever is more.

    `keeps`: its node cannot give it what it requests. A container with only a limit requests that amount: the API
    server fills it in for pods, but not for templates.
    """
    resources = container.get("resources") or {}
    found = _values({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
    if status is None:
        return found
    has = _values((status.get("resources") or {}).get("requests") or {})
    _raise(has, _values(status.get("allocatedResources") or {}))
    if keeps and has:
        return has
    _raise(found, has)
    return found


# Pods have few different amounts, and are counted whenever something on their node changes.
@lru_cache(4096)
def _quantity(text: object) -> Fraction:
    """Parse a quantity. Raises ValueError."""
    return quantity(str(text))


def _value(name: str, text: object) -> Fraction:
    """The amount of a resource in a pod, checked by the API server's rules for pods. Raises Malformed.

    The API server does not apply these rules to all templates.
    """
    try:
        amount = _quantity(text)
    except ValueError as exc:
        raise Malformed(f"resources of its pods: {name}: {exc}") from None
    if amount < 0:
        raise Malformed(f"resources of its pods: {name}: must not be negative, it is {text}")
    if "/" in name and amount.denominator != 1:
        raise Malformed(f"resources of its pods: {name}: must be a whole number, not {text}")
    return amount


def _values(texts: Mapping[str, object]) -> _Exact:
    return {name: _value(name, text) for name, text in texts.items()}


def _add(into: _Exact, more: _Exact) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, Fraction(0)) + amount


def _raise(into: _Exact, others: _Exact) -> None:
    for name, amount in others.items():
        into[name] = max(into.get(name, Fraction(0)), amount)


def is_counted(name: str) -> bool:
    """Whether nodes have a pool of a resource: the standard resources of pods, and extended resources."""
    return name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-") or "/" in name


def type_of(name: str) -> str:
    """The type of the graph's vertices for a Kubernetes resource.

    Paths of vertices contain slashes, so a slash in the name becomes a `~`, which no resource name contains.
    """
    return "gpu" if name == _GPU else name.replace("/", "~")


def resource_of(kind: str) -> str:
    """The Kubernetes resource for a type of vertices (inverse of `type_of`)."""
    return _GPU if kind == "gpu" else kind.replace("~", "/")


def units_of(name: str, amount: object) -> int:
    """A quantity of a resource in the units of its pool, rounded down. Raises ValueError."""
    return int(_in_units(name, _quantity(amount)))


def _in_units(name: str, amount: Fraction) -> Fraction:
    if name == "cpu":
        return amount * 1000
    return amount / _MIB if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-") else amount


def total(several: Iterable[Amounts]) -> dict[str, int]:
    """The sum of amounts."""
    found: dict[str, int] = {}
    for amounts in several:
        for kind, amount in amounts.items():
            found[kind] = found.get(kind, 0) + amount
    return found


def beyond(amounts: Amounts, given: Amounts) -> dict[str, int]:
    """The part of some amounts that exceeds the given amounts."""
    return {kind: amount - given.get(kind, 0) for kind, amount in amounts.items() if amount > given.get(kind, 0)}


def largest(several: Iterable[Amounts]) -> dict[str, int]:
    """The maximum of several amounts, by type."""
    found: dict[str, int] = {}
    for amounts in several:
        for kind, amount in amounts.items():
            found[kind] = max(found.get(kind, 0), amount)
    return found


def jobspec(
    name: str,
    namespace: str,
    pods: int,
    amounts: Amounts,
    duration: float = 0,
    constraint: Any = None,
    *,
    is_apart: bool = False,
    within: str = "",
    label: str = "pod",
) -> Object:
    """The jobspec (RFC 14) of `pods` pods, each with `amounts` of one node.

    `duration` is in seconds, 0 for none. `is_apart`: no two pods share a node. `within`: the type of a level above
    nodes; all pods are within one vertex of it. `label` is the label of the slots.
    """
    inside = [{"type": kind, "count": amount, "exclusive": False} for kind, amount in sorted(amounts.items())]
    slot: Object = {"type": "slot", "count": 1 if is_apart else pods, "label": label, "with": inside}
    if is_apart:
        slot = {"type": "node", "count": pods, "exclusive": False, "with": [slot]}
    if within:
        slot = {"type": within, "count": 1, "exclusive": False, "with": [slot]}
    system: Object = {"duration": ceil(duration), **({"constraints": constraint} if constraint else {})}
    return {
        "version": 1,
        "resources": [slot],
        "tasks": [{"command": [namespace, name], "slot": label, "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


def jobspec_of_sets(sets: Mapping[str, Object], within: str = "") -> Object:
    """The jobspec of several sets of pods, from the jobspec of each, by the label of its slots.

    Their constraints are in `attributes.user.constraints` by label; those of RFC 14 apply to the whole job. `within` is
    as for `jobspec`.
    """
    first = next(iter(sets.values()))
    resources = [one["resources"][0] for one in sets.values()]
    system = {"duration": first["attributes"]["system"]["duration"]}
    found = {label: one["attributes"]["system"].get("constraints") for label, one in sets.items()}
    user = {"constraints": {label: one for label, one in found.items() if one}}
    return {
        "version": 1,
        "resources": [{"type": within, "count": 1, "exclusive": False, "with": resources}] if within else resources,
        "tasks": [one["tasks"][0] for one in sets.values()],
        "attributes": {"system": system, **({"user": user} if user["constraints"] else {})},
    }
