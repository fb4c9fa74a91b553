"""The demand of an object, and the request to the graph that it leads to: frozen values.

An adapter in `workloads` reads the demand of an object. `request` turns it into a request to the graph.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Object = dict[str, Any]


class PodSet(Struct, frozen=True, kw_only=True):
    """The pods of an object with the same requests."""

    # The number of pods at a time.
    pods: int
    # PodSpecs. Each pod is made from one of them.
    templates: tuple[Object, ...]
    labels: Object = {}
    # Identifies the set within its object.
    name: str = ""
    # A pod is in this set if it has all labels of `selector`, or a name in `names`. If both are empty, the set has the
    # pods that are in no other set.
    selector: Object = {}
    names: frozenset[str] = frozenset()
    # In a set of several Jobs: the number of pods of each Job at a time.
    per_job: int = 0
    # The ordinal of the first pod.
    first_ordinal: int = 0

    def has(self, pod: Object) -> bool:
        """Whether the selector or the names of this set match a pod."""
        labels = pod["metadata"].get("labels") or {}
        selected = self.selector and all(labels.get(key) == value for key, value in self.selector.items())
        return bool(selected) or pod["metadata"].get("name") in self.names


class Demand(Struct, frozen=True, kw_only=True):
    """The demand of an object: the pods that it wants now."""

    sets: tuple[PodSet, ...] = ()
    # The number of pods that will be created and whose templates are not known yet.
    unseen: int = 0
    # "" until the object has ended, then "Finished" or "Failed"; and the reason of a failure, if Kubernetes reports it.
    end: str = ""
    failure: str = ""
    # The seconds after which Kubernetes ends the object; None for no limit.
    limit: float | None = None
    # A message about another object that must exist before this one can start; "" for none.
    missing: str = ""
    # True if all pods start at the same time. If False, each pod starts as soon as there is room, and there is one set.
    together: bool = True
    # The names of volume claims of the pods, in addition to those in the templates.
    claims: tuple[str, ...] = ()

    @property
    def pods(self) -> int:
        """The number of pods that the object wants at a time."""
        return sum(one.pods for one in self.sets) + self.unseen

    @property
    def templates(self) -> tuple[Object, ...]:
        """The PodSpecs of all sets."""
        return tuple(template for one in self.sets for template in one.templates)

    def set_of(self, pod: Object) -> PodSet | None:
        """The set of a pod; None if it is not known."""
        rest = (one for one in self.sets if not one.selector and not one.names)
        return next((one for one in self.sets if one.has(pod)), None) or next(rest, None)


class SetRequest(Struct, frozen=True):
    """The request of each pod of a set: `amounts` of a node that satisfies `constraint`.

    `is_apart`: no two pods of the set share a node. `keeps_apart`: no pod shares a node with a pod of another set that
    keeps apart.
    """

    amounts: dict[str, int]
    constraint: Any
    is_apart: bool = False
    keeps_apart: bool = False


class Request(Struct, frozen=True, kw_only=True):
    """The request of a job to the graph: its sets by name, for `duration` seconds (0: not known).

    All nodes have one value of the label `within` ("": no such label), and `level` is the type of the vertices for that
    label. `left` are the fields that no plan considers.
    """

    sets: dict[str, SetRequest]
    duration: float
    within: str = ""
    level: str = ""
    left: tuple[str, ...] = ()
