"""The description of a kind of workload.

Each kind has a file in this folder with a `WORKLOAD_KIND`; `workloads.KINDS` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from headrace.k8s.objects.conditions import Ended, is_suspended
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.objects.timestamps import seconds_of

from ..model.demand import Demand
from ..names import DEADLINE, HELD

Object = dict[str, Any]
Made = Mapping[str, Sequence[Object]]
"""The objects of known kinds that an object owns, directly or indirectly, by kind and sorted by name."""
NOTHING: Made = {}


def itself(item: Object) -> tuple[Object, ...]:
    return (item,)


class WorkloadKind(NamedTuple):
    """A kind of workload.

    - `number` is its `type` in a FluxJob.
    - `suspend` is the path of the field that keeps it from making pods, () for a kind without one.
    - `demand` takes an object and the objects that it has made, and raises `resources.Malformed`.
    - `controller` is the value of `managed_by` for the kind's own controller; "" for a kind that no other controller
      can manage.
    - `objects` returns the API objects of an item, all of `kind`.
    - `deadline` is the path of the seconds after which Kubernetes ends the object, () for a kind whose pods are ended
      one by one.
    - `lasts` says that it runs until it is deleted.
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

    def is_unmanaged(self, item: Object) -> bool:
        """Whether another program manages an object."""
        return bool(self.controller) and value_at(item, self.managed_by) not in (None, "", self.controller)

    def is_suspended(self, item: Object) -> bool:
        return is_suspended(item, self.suspend)

    def suspended(self) -> Object:
        """The merge patch that suspends an object."""
        return with_value({}, self.suspend, True)

    def held_again(self, item: Object) -> Object:
        """The merge patch that queues an object that its user has suspended.

        It removes the deadline that the queue set at the last start.
        """
        body, own = with_value({}, _mark(HELD), "true"), value_at(item, self.deadline)
        if self.deadline and own is not None and value_at(item, _mark(DEADLINE)) == str(own):
            body = with_value(with_value(body, self.deadline, None), _mark(DEADLINE), None)
        return body

    def released(self, item: Object, seconds: int, released_at: float) -> Object:
        """The merge patch that lets an object make its pods.

        Kubernetes ends the object `seconds` after its release at `released_at` (seconds since the epoch), unless its
        own deadline is earlier; 0: no limit.
        """
        body: Object = {}
        started = value_at(item, ("status", "startTime"))
        if seconds and started and not self.is_suspended(item):
            # The user has unsuspended the object. Kubernetes counts from that moment, even while its pods were held.
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
    """The value of a field; None if it is missing."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def end_text(end: Ended | None) -> str:
    """The `end` of a Demand."""
    return "" if end is None else "Finished" if end.succeeded else "Failed"


def with_value(item: Object | None, path: tuple[str, ...], value: Any) -> Object:
    """A copy of an object in which a field has a value. Only the path to the field is copied."""
    key, *rest = path
    above = item or {}
    return {**above, key: with_value(above.get(key), tuple(rest), value) if rest else value}


def is_longer(deadline: int | None, seconds: int) -> bool:
    """Whether a deadline (None: none) allows more than `seconds` seconds."""
    return deadline is None or deadline > seconds
