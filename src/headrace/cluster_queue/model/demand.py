"""The demand of an object, and the request to the graph that it leads to: frozen values.

An adapter in `workloads` reads the demand of an object. `request` turns it into a request to the graph.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Object = dict[str, Any]


class PodSet(Struct, frozen=True, kw_only=True):
    """The pods of an object that ask for the same.

    There are `pods` at a time, each according to one of the PodSpecs in `templates` and with these `labels`. `name`
    identifies the set within its object.

    A pod is in this set if it has all labels of `selector`, or one of `names`. A set with neither has the pods that are
    in no other set. In a set of several Jobs, `per_job` is the number of pods of each Job at a time. `first_ordinal` is
    the ordinal of the first pod.
    """

    pods: int
    templates: tuple[Object, ...]
    labels: Object = {}
    name: str = ""
    selector: Object = {}
    names: frozenset[str] = frozenset()
    per_job: int = 0
    first_ordinal: int = 0

    def has(self, pod: Object) -> bool:
        """Whether the selector or the names of this set match a pod."""
        labels = pod["metadata"].get("labels") or {}
        selected = self.selector and all(labels.get(key) == value for key, value in self.selector.items())
        return bool(selected) or pod["metadata"].get("name") in self.names


class Demand(Struct, frozen=True, kw_only=True):
    """The demand of an object: the pods that it wants now.

    The pods in `sets` start `together`; without that there is one set, and each pod starts as soon as there is room.
    `unseen` is the number of further pods of which nothing else is known. `end` is "" until the object has ended, then
    "Finished" or "Failed". `limit` is the time after which Kubernetes ends the object (seconds), None for none.
    `failure` is the reason of a failure, if Kubernetes reports one. `missing` is what must exist before the object can
    start, "" for nothing. `claims` are the names of volume claims of its pods beside those in their templates.
    """

    sets: tuple[PodSet, ...] = ()
    unseen: int = 0
    end: str = ""
    failure: str = ""
    limit: float | None = None
    missing: str = ""
    together: bool = True
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
