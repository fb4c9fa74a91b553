"""Quotas: how much of a queue the jobs of a namespace may have at a time. Pure.

A job that would take its namespace over a limit stays out of the queue's order, where it would block other jobs. Jobs
in the order count like running jobs, so that all of them may start. The jobs in the order are derived from the running
and waiting jobs alone: by priority and time in the queue, each job that fits into the room left by those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.sched.queueing.pending import Position
from headrace.sched.queueing.sorted_list import SortedList

from .resources import Amounts, units_of

Object = dict[str, Any]
Quota = Mapping[str, int]
"""Limits by the types of `resources.Amounts`, and by JOB for jobs."""

JOB = "job"
# The fields of a quota, and their types.
_TYPES = {"cpu": "cpu", "memory": "memory", "gpu": "gpu", "pods": "pod", "jobs": JOB}
_FIELDS = {kind: name for name, kind in _TYPES.items()}


def quota_of(item: Object) -> dict[str, int]:
    """The limits in an entry of a FluxQueue's `quotas`, in the units of `resources.amounts_of`."""
    return {kind: units_of(name, item[name]) for name, kind in _TYPES.items() if name in item}


class _Waiting(NamedTuple):
    position: Position
    need: tuple[int, ...]


class Account:
    """The jobs of a namespace in a queue. Amounts are tuples with a number for each limit, in order."""

    def __init__(self, namespace: str, quota: Quota) -> None:
        self.namespace = namespace
        self.has_changed = False
        self._kinds = tuple(quota)
        self._limits = tuple(quota.values())
        self._running: dict[int, tuple[int, ...]] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._order: SortedList[Position] = SortedList()
        # Waiting jobs that may be in the queue's order, and jobs added since the last review.
        self._inside: set[int] = set()
        self._new: set[int] = set()
        # The use by running jobs; and, as of the last review, by running jobs and jobs in the order.
        self._used = [0] * len(quota)
        self._taken = self._used

    def run(self, jobid: int, amounts: Amounts) -> None:
        """Note the amounts that a job now has of the queue's nodes."""
        need = self._need(amounts)
        if self._running.get(jobid) != need:
            self.forget(jobid)
            self._running[jobid] = need
            self._used = [used + more for used, more in zip(self._used, need, strict=True)]
            self.has_changed = True

    def wait(self, jobid: int, position: Position, amounts: Amounts) -> None:
        """Note that a job waits at a position for these amounts."""
        asks = _Waiting(position, self._need(amounts))
        if self._waiting.get(jobid) != asks:
            self.forget(jobid)
            self._waiting[jobid] = asks
            self._order.add(position)
            self._new.add(jobid)
            self.has_changed = True

    def forget(self, jobid: int) -> None:
        """Forget a job that neither runs nor waits. Unknown jobs are ignored."""
        waited, ran = self._waiting.pop(jobid, None), self._running.pop(jobid, None)
        if waited:
            self._order.remove(waited.position)
        if ran:
            self._used = [used - less for used, less in zip(self._used, ran, strict=True)]
        self.has_changed = self.has_changed or waited is not None or ran is not None
        self._inside.discard(jobid)
        self._new.discard(jobid)

    def review(self) -> Iterator[tuple[int, bool]]:
        """Whether waiting jobs may be in the queue's order.

        Yields the jobs for which this has changed, and the first job that may not.
        """
        self.has_changed = False
        inside, first = self._divide()
        changed = self._new | (inside ^ self._inside) | ({first} if first is not None else set())
        self._inside, self._new = inside, set()
        asked = [self._waiting[jobid].need for jobid in inside]
        self._taken = [sum(column) for column in zip(self._used, *asked, strict=True)]
        ordered = sorted(changed, key=lambda jobid: self._waiting[jobid].position)
        return ((jobid, jobid in inside) for jobid in ordered)

    def _divide(self) -> tuple[set[int], int | None]:
        """The waiting jobs that fit into the quota beside the running ones, and the first that does not."""
        room = [limit - used for limit, used in zip(self._limits, self._used, strict=True)]
        inside: set[int] = set()
        first: int | None = None
        too_large: set[tuple[int, ...]] = set()
        for position in self._order:
            jobid = position[2]
            need = self._waiting[jobid].need
            if need not in too_large and all(
                asked <= left or not asked for asked, left in zip(need, room, strict=True)
            ):
                inside.add(jobid)
                room = [left - asked for left, asked in zip(room, need, strict=True)]
            else:
                too_large.add(need)
                first = jobid if first is None else first
        return inside, first

    def outside(self) -> list[int]:
        """The waiting jobs that may not be in the queue's order."""
        return [jobid for jobid in self._waiting if jobid not in self._inside]

    def excess(self, jobid: int) -> str:
        """The limits that a waiting job exceeds, and by how much; "" for one in the order or unknown."""
        if jobid in self._inside or jobid not in self._waiting:
            return ""
        return self._excess(self._waiting[jobid].need, self._taken)

    def excess_of(self, amounts: Amounts) -> str:
        """As `excess`, for amounts of a job that starts at once; "" if they are within the limits."""
        inside = [self._waiting[jobid].need for jobid in self._inside]
        taken, need = [sum(column) for column in zip(self._used, *inside, strict=True)], self._need(amounts)
        entries = zip(self._limits, taken, need, strict=True)
        is_over = any(asked and used + asked > limit for limit, used, asked in entries)
        return self._excess(need, taken) if is_over else ""

    def _excess(self, need: tuple[int, ...], taken: list[int]) -> str:
        alone = [entry for entry in zip(self._kinds, need, self._limits, strict=True) if entry[1] > entry[2]]
        if alone:
            over = ", ".join(
                f"{_FIELDS[kind]} {_text(kind, asked)} of {_text(kind, limit)} ({_text(kind, asked - limit)} over)"
                for kind, asked, limit in alone
            )
            return f"it alone exceeds the quota of namespace {self.namespace}: {over}"
        over = ", ".join(
            f"{_FIELDS[kind]} {_text(kind, used + asked)} of {_text(kind, limit)} "
            f"({_text(kind, used + asked - limit)} over, {_text(kind, used)} taken)"
            for kind, asked, limit, used in zip(self._kinds, need, self._limits, taken, strict=True)
            if asked and used + asked > limit
        )
        return f"over the quota of namespace {self.namespace}: {over}"

    def _need(self, amounts: Amounts) -> tuple[int, ...]:
        return tuple(amounts.get(kind, 0) for kind in self._kinds)


def _text(kind: str, amount: int) -> str:
    """An amount as a Kubernetes quantity."""
    if kind == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if kind == "memory":
        return f"{amount // 1024}Gi" if amount % 1024 == 0 else f"{amount}Mi"
    return str(amount)
