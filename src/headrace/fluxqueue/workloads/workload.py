"""What the queue knows of a kind of workload. A kind is a file with a `WORKLOAD`; `workloads.KINDS` has all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from ...kube.runtime.api import Kind

Object = dict[str, Any]


class Wish(Struct, frozen=True, kw_only=True):
    """What an object wants now: so many `pods` at a time, each as one of the PodSpecs `templates` says and with these
    `labels`. `end` is "" until it has ended, then "Finished" or "Failed". `limit` is the time after which Kubernetes
    ends it (seconds), None for none. `missing` says what has to come before it can start, "" for nothing.
    """

    pods: int
    templates: tuple[Object, ...]
    labels: Object = {}
    end: str = ""
    limit: float | None = None
    missing: str = ""


class Malformed(ValueError):
    """An object that no queue takes: the message names the field and the rule."""


def itself(item: Object) -> tuple[Object, ...]:
    return (item,)


class Workload(NamedTuple):
    """A kind: `number` is its `type` in a FluxJob, `suspend` the path of the field that keeps it from making pods, ()
    for a kind without one. `wish` raises Malformed. `left_alone` says whether an object is another program's to manage.
    `objects` are those of the API that an item stands for, all of `kind`.
    """

    kind: Kind
    number: int
    suspend: tuple[str, ...]
    wish: Callable[[Object], Wish]
    left_alone: Callable[[Object], bool] = lambda item: False
    objects: Callable[[Object], tuple[Object, ...]] = itself

    def is_suspended(self, item: Object) -> bool:
        value: Any = item
        for key in self.suspend:
            value = (value or {}).get(key)
        return value is True

    def suspended(self, item: Object, value: bool) -> Object:
        """A document with the field `suspend` alone, in an object or (merge patch) for it."""
        found: Any = value
        for key in reversed(self.suspend):
            found = {key: found}
        return dict(found)
