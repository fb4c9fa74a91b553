"""What an object wants now, and what it asks of the graph for that: frozen values.

An adapter in `workloads` reads the demand of an object. `request` turns it into a request of the graph.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Object = dict[str, Any]


class PodSet(Struct, frozen=True, kw_only=True):
    """Pods of an object that ask for the same: so many `pods` at a time, each as one of the PodSpecs `templates` says
    and with these `labels`. `name` tells a set from the others of its object.

    A pod is of this set if it has all labels of `selector`, or one of `names`; a set without these has the pods of no
    other set. Where a set is of several Jobs, `per_job` is how many pods each of them has at a time. `first_ordinal` is
    the ordinal of its first pod.
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
        """Whether a pod is one of these by what tells them from others."""
        labels = pod["metadata"].get("labels") or {}
        selected = self.selector and all(labels.get(key) == value for key, value in self.selector.items())
        return bool(selected) or pod["metadata"].get("name") in self.names


class Demand(Struct, frozen=True, kw_only=True):
    """What an object wants now: pods in `sets`; all at once, or (not `together`, then of one set) each as soon as there
    is room. `unseen` is how many pods it wants beside these, of which nothing else is known. `end` is "" until it has
    ended, then "Finished" or "Failed". `limit` is the time after which Kubernetes ends it (seconds), None for none.
    `failure` is why it has failed, as far as Kubernetes tells that, and `missing` what has to come before it can start,
    "" for nothing. `claims` are the names of claims for volumes that its pods get beside those of their templates.
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
        """How many pods it wants at a time."""
        return sum(one.pods for one in self.sets) + self.unseen

    @property
    def templates(self) -> tuple[Object, ...]:
        """The PodSpecs of its pods."""
        return tuple(template for one in self.sets for template in one.templates)

    def set_of(self, pod: Object) -> PodSet | None:
        """The set of a pod, None where that is not known."""
        rest = (one for one in self.sets if not one.selector and not one.names)
        return next((one for one in self.sets if one.has(pod)), None) or next(rest, None)


class SetRequest(Struct, frozen=True):
    """What each pod of a set asks for: `amounts` of a node that satisfies the constraint. `is_apart`: no two of them on
    one node; `keeps_apart`: on no node of another set of which that is true.
    """

    amounts: dict[str, int]
    constraint: Any
    is_apart: bool = False
    keeps_apart: bool = False


class Request(Struct, frozen=True, kw_only=True):
    """What a job asks of the graph: what the pods of its sets ask for, by name, for `duration` seconds (0: not known).

    `within`: the label for which their nodes have one value, "" for none, and `level` the type of the vertices that
    stand for it. `left` are the fields that no plan knows of.
    """

    sets: dict[str, SetRequest]
    duration: float
    within: str = ""
    level: str = ""
    left: tuple[str, ...] = ()
