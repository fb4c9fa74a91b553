"""A kind of workload: a file with a `WORKLOAD_KIND` here describes it, and `workloads.KINDS` has all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from msgspec import Struct

from headrace.k8s.objects.conditions import Ended, is_suspended
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.objects.timestamps import seconds_of

from ..names import DEADLINE, HELD

Object = dict[str, Any]
Made = Mapping[str, Sequence[Object]]
"""The objects of known kinds that an object has made, itself or by others, by kind and in the order of their names."""
NOTHING: Made = {}


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


def itself(item: Object) -> tuple[Object, ...]:
    return (item,)


class WorkloadKind(NamedTuple):
    """A kind: `number` is its `type` in a FluxJob, `suspend` the path of the field that keeps it from making pods, ()
    for a kind without one, `deadline` that of the seconds after which Kubernetes ends it, () for a kind whose pods are
    ended one by one. `demand` takes an object and what it has made, and raises `requests.Malformed`.
    `controller` is what `managed_by` says where an object is for the kind's own controller; "" for a kind that always
    is. `objects` are those of the API that an item
    stands for, all of `kind`. `lasts`: it goes on until it is deleted.
    """

    kind: Kind
    number: int
    suspend: tuple[str, ...]
    demand: Callable[[Object, Made], Demand]
    controller: str = ""
    managed_by: tuple[str, ...] = ("spec", "managedBy")
    objects: Callable[[Object], tuple[Object, ...]] = itself
    deadline: tuple[str, ...] = ()
    lasts: bool = False

    def left_alone(self, item: Object) -> bool:
        """Whether an object is another program's to manage."""
        return bool(self.controller) and value_at(item, self.managed_by) not in (None, "", self.controller)

    def is_suspended(self, item: Object) -> bool:
        return is_suspended(item, self.suspend)

    def suspended(self) -> Object:
        """The merge patch that keeps an object from having pods."""
        return with_value({}, self.suspend, True)

    def held_again(self, item: Object) -> Object:
        """The merge patch by which an object that its user has suspended waits anew, without the deadline that the
        queue has given it at its last start.
        """
        body, own = with_value({}, _mark(HELD), "true"), value_at(item, self.deadline)
        if self.deadline and own is not None and value_at(item, _mark(DEADLINE)) == str(own):
            body = with_value(with_value(body, self.deadline, None), _mark(DEADLINE), None)
        return body

    def released(self, item: Object, seconds: int, released_at: float) -> Object:
        """The merge patch that lets an object make its pods, and has Kubernetes end it so many seconds after it was
        released (seconds since the epoch), unless it is to do that earlier; 0: for no limit.
        """
        body: Object = {}
        started = value_at(item, ("status", "startTime"))
        if seconds and started and not self.is_suspended(item):
            # Its user has unsuspended it. Kubernetes counts from then on, also while its pods were held.
            seconds += max(ceil(released_at - seconds_of(started)), 0)
        if value_at(item, _mark(HELD)) is not None:
            body = with_value(body, _mark(HELD), None)
        if self.suspend:
            body = with_value(body, self.suspend, False)
        if self.deadline and seconds and is_longer(value_at(item, self.deadline), seconds):
            body = with_value(with_value(body, self.deadline, seconds), _mark(DEADLINE), str(seconds))
        return body


def _mark(name: str) -> tuple[str, ...]:
    """The path of an annotation."""
    return ("metadata", "annotations", name)


def value_at(item: Object, path: tuple[str, ...]) -> Any:
    """The value of a field, None where it is not there."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def end_text(end: Ended | None) -> str:
    """The `end` of a Demand."""
    return "" if end is None else "Finished" if end.succeeded else "Failed"


def with_value(item: Object | None, path: tuple[str, ...], value: Any) -> Object:
    """An object in which a field has a value; all but what is above that field is the object's own."""
    key, *rest = path
    above = item or {}
    return {**above, key: with_value(above.get(key), tuple(rest), value) if rest else value}


def is_longer(deadline: int | None, seconds: int) -> bool:
    """Whether a deadline (None: none) lets something run for more than so many seconds."""
    return deadline is None or deadline > seconds
