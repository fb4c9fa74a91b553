"""The resource requests of jobspecs, in the form that the graph's scheduler searches for.

Most jobs of an instance have equal requests, so requests are cached by the text of a jobspec's parts. The size of the
cache is limited, so that jobspecs of users cannot make the scheduler grow permanently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Generic, TypeVar

import msgspec

from headrace.formats.spec import jobspec as js
from headrace.formats.spec.constraint import validate as validate_constraint
from headrace.sched.graph import Graph, parse_jobspec
from headrace.sched.graph.request import JobRequest, Request, RequestError
from headrace.sched.queueing.pending import UNLIMITED

_Value = TypeVar("_Value")
# Limits on a cache: total bytes of its keys, and number of entries. A value takes a few times the bytes of its key.
MOST_BYTES = 1 << 20
MOST_ENTRIES = 4096


class BoundedCache(Generic[_Value]):
    """A cache by the bytes or the text of a request. It is emptied before it would exceed a limit."""

    def __init__(self) -> None:
        self._found: dict[object, _Value] = {}
        self._size = 0

    def get(self, key: object) -> _Value | None:
        return self._found.get(key)

    def put(self, key: object, size: int, value: _Value) -> None:
        """Store `value`, unless the `size` of its key, in bytes, exceeds the limit of the whole cache."""
        if self._size + size > MOST_BYTES or len(self._found) >= MOST_ENTRIES:
            self.clear()
        if size <= MOST_BYTES:
            self._found[key] = value
            self._size += size

    def clear(self) -> None:
        self._found.clear()
        self._size = 0


class Requests:
    """Reads the requests of jobspecs for a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: BoundedCache[JobRequest] = BoundedCache()

    def uncached(self, jobspec: Mapping[str, Any]) -> JobRequest:
        """The request of a jobspec that is only checked, not submitted, and therefore not cached.

        Raises RequestError or ConstraintError.
        """
        system = js.system(jobspec)  # type: ignore[arg-type]
        return self._read(jobspec["resources"], system.get("duration") or 0, system.get("constraints"))

    def of_parts(self, resources: bytes, duration: float, constraints: bytes) -> JobRequest:
        """The request of a jobspec with these parts (JSON). Equal requests are the same object.

        Raises RequestError or ConstraintError.
        """
        key = (resources, duration, constraints)
        found = self._found.get(key)
        if found is None:
            parts = msgspec.json.decode(resources), duration, msgspec.json.decode(constraints)
            found = self._read(*parts)
            self._found.put(key, len(resources) + len(constraints), found)
        return found

    def _read(self, resources: Any, duration: float, constraint: Any) -> JobRequest:
        if constraint:
            validate_constraint(constraint)
        wanted = parse_jobspec({"resources": resources}, self._graph.units).resources
        _refuse_duplicates(wanted)
        return JobRequest(wanted, min(ceil(duration) or UNLIMITED, UNLIMITED), constraint)


def _refuse_duplicates(requests: Sequence[Request]) -> None:
    """Raise RequestError if sibling requests have the same type.

    As in Fluxion, the matcher serves only the last of them, so the job would run on fewer resources than requested.
    """
    types = [request.type for request in requests if request.type not in ("slot", "xor_slot")]
    for request in requests:
        if types.count(request.type) > 1:
            raise RequestError(f"resources: {request.type} is asked for twice side by side: ask once, for all of it")
        _refuse_duplicates(request.with_)
