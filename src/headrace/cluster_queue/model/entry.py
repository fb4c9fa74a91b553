"""A queued job: its frozen values, and the progress that the steps of a cycle make with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from math import ceil
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..workloads import WorkloadKind, group
from . import resources
from .assignment import Assignment, Slot
from .demand import Demand, Request, SetRequest
from .quota import JOB

Object = dict[str, Any]


# Seconds that a plan adds to a job's duration: binding and starting its pods, and observing their end, take time.
# Without these seconds, each job would end later than planned, and every job planned on its nodes would be planned
# again, perhaps much later.
LATENCY = 3


class State(Enum):
    """`status.state` of a FluxJob."""

    HELD = "Held"
    RELEASED = "Released"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    REFUSED = "Refused"

    @property
    def has_nodes(self) -> bool:
        return self in (State.RELEASED, State.RUNNING)

    @property
    def is_over(self) -> bool:
        return self in (State.FINISHED, State.FAILED)


class Wait(NamedTuple):
    """Pods of a job that have waited for slots since a time (seconds since the epoch)."""

    pods: int
    since: float


# Maximum number of pending pods of one job, if each starts by itself.
WINDOW = 64


def waits_of(before: list[Wait], pods: int, together: bool, since: float) -> list[Wait]:
    """The waits of a job that lacks `pods` pods, given its waits `before`.

    Additional pods wait from `since` on, unless all pods start together. If fewer pods are wanted, the latest waits
    shrink.
    """
    if together:
        return [Wait(pods, before[0].since if before else since)] if pods else []
    waits = list(before)
    more = pods - sum(one.pods for one in waits)
    if more > 0 and waits and waits[-1].since == since:
        waits[-1] = Wait(waits[-1].pods + more, since)
    elif more > 0:
        waits.append(Wait(more, since))
    while more < 0:
        last = waits.pop()
        more += last.pods
        if more > 0:
            waits.append(Wait(more, last.since))
    return waits


def started(waits: list[Wait], part: Wait) -> list[Wait]:
    """Remove a started part from the waits."""
    at = next(index for index, one in enumerate(waits) if one.since == part.since)
    left = waits[at].pods - part.pods
    return [*waits[:at], *([Wait(left, part.since)] if left else []), *waits[at + 1 :]]


def with_undersized(waits: list[Wait], undersized: Iterable[float]) -> list[Wait]:
    """Add the pods whose slots have become too small, one for each former wait time in `undersized`."""
    found = Counter({one.since: one.pods for one in waits})
    found.update(undersized)
    return [Wait(pods, since) for since, pods in sorted(found.items())]


def parts_of(waits: list[Wait], together: bool, window: int = WINDOW) -> list[Wait]:
    """The waits of a job as parts: the job sends the graph one request for each part, in this order."""
    if together:
        return waits
    return list(islice((Wait(1, wait.since) for wait in waits for _ in range(wait.pods)), window))


def waiting_reason(entry: Entry, why: str) -> str:
    """The reason `why` a job waits; if the job has nodes, with the number of its pods that wait."""
    pods = sum(one.pods for one in entry.backlog.waits)
    if not entry.has_nodes or not why:
        return why
    return f"{pods} pod{' waits' if pods == 1 else 's wait'}: {why}" if pods else ""


class Backlog(Struct, frozen=True):
    """The pods of a job that have no slots: their waits, in order, and their number in each set.

    `undersized` are the former wait times of pods whose slots have become too small: these pods wait again.
    """

    waits: list[Wait] = []
    lacks: dict[str, int] = {}
    undersized: tuple[float, ...] = ()


class Shape(NamedTuple):
    """The content of the requests for a job's parts.

    `pods` are the names of the sets that lack pods, and `sets` are the requests of these sets. If there are several
    sets, `numbers` has the number of pods of each.
    """

    pods: tuple[str, ...]
    sets: tuple[tuple[str, SetRequest, Any], ...]
    numbers: dict[str, int] | None
    duration: float
    within: str
    priority: int


class Part(NamedTuple):
    """A pending part of a job: the wait that it is for, and its shape."""

    wait: Wait
    shape: Shape


class Standing(Struct, frozen=True):
    """The place of a job in the order of its queue.

    `is_ready`: its backlog may be in the order, as far as its namespace's quota allows. `excess`: the limits of the
    quota that it exceeds. Position and estimated start are 0 if they are not known.
    """

    is_ready: bool = False
    excess: str = ""
    position: int = 0
    estimate: float = 0
    is_reserved: bool = False


class Status(Struct, frozen=True, kw_only=True):
    """The status of a job as its FluxJob shows it. Times are seconds since the epoch, 0 for none.

    `reason` says why the job waits, or what is wrong with it. `unbound` says why its pods are not bound, until all are.
    """

    queued_at: float
    state: State = State.HELD
    reason: str = ""
    unbound: str = ""
    started_at: float = 0
    ended_at: float = 0
    is_suspended_by_user: bool = False


class Awaited(Struct, frozen=True):
    """Pods that were given to nodes and are not bound yet.

    `pinned_at` has the time by pod uid, `late` the pods that were not bound in time. `avoided` are nodes to which pods
    were not bound in time: other nodes with room are preferred.
    """

    pinned_at: dict[str, float] = {}
    late: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()


class Published(Struct, frozen=True):
    """The last status write that was requested: its time, and the position and estimate in it.

    `is_due`: a status must be written even if only position or counts differ.
    """

    at: float
    forecast: tuple[int, int] = (0, 0)
    is_due: bool = False


class Entry(Struct, eq=False, kw_only=True):
    """A workload in its queue: its demand, assignment, status and progress.

    State that must outlast the process is in the FluxJob.

    `demand`, `assignment` and `status` are frozen values. The fields below them are the progress made by steps. Each
    field is written in one file (`tests/cluster_queue/model/test_cluster_queue_entry.py`).
    """

    uid: str
    workload: WorkloadKind
    jobid: int
    queue: str
    demand: Demand
    assignment: Assignment = Assignment()
    status: Status

    # Admit: the object as last seen, its request to the graph (None if not known, or if the job is refused), and its
    # priority.
    item: Object
    request: Request | None = None
    priority: int = 0
    # Order: pods without slots, their pending parts by id, and the job's place in the order.
    backlog: Backlog = Backlog()
    pending: dict[int, Part] = {}
    standing: Standing = Standing()
    # Assign: the slots that were not freed, and whether `slots` has been filled.
    slots: list[Slot] = []
    has_slots: bool = False
    # The holds of freed slots. They are released once the status shows the freed slots: until then, a restarted
    # process would count the slots as the job's.
    leaving: list[int] = []
    # Admission may have added containers to a set's pods. By set: the uid of a pod that asks for more than its
    # template, and the amounts that it asks for.
    enlarged: dict[str, tuple[str, resources.Amounts]] = {}
    # Report: pods that are not bound yet, and the last requested status write.
    awaited: Awaited = Awaited()
    published: Published

    # --- changes of status

    def _become(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)

    def explain(self, reason: str) -> None:
        """Set the reason why the job waits, or what is wrong with it."""
        if reason != self.status.reason:
            self._become(reason=reason)

    def ask(self, request: Request | None) -> None:
        """Set the request; None if it is not known."""
        self.request = request

    def refuse(self, reason: str) -> None:
        """Refuse the job. If it has nodes, it keeps them."""
        self.explain(reason)
        if not self.has_nodes:
            self.ask(None)
            self._become(state=State.REFUSED)

    def accept(self) -> None:
        """Withdraw a refusal, if there was one."""
        if self.state is State.REFUSED:
            self._become(state=State.HELD, reason="")

    def start(self, now: float) -> None:
        """Note that the job got nodes: its first ones, or more."""
        if self.has_nodes:
            self.explain("")
        else:
            self._become(state=State.RELEASED, started_at=now, unbound="", reason="")

    def run(self) -> None:
        """Note that all pods run."""
        self._become(state=State.RUNNING)

    def run_outside(self, now: float) -> None:
        """Note that the job has running pods that the queue did not start, so that it is not shown as waiting."""
        self._become(state=State.RUNNING, started_at=self.status.started_at or now, reason="")

    def requeue(self, reason: str = "") -> None:
        """Put a job whose slots were freed into the queue again. Its time in the queue does not change."""
        self._become(state=State.HELD, started_at=0, reason=reason)

    def restart_wait(self, now: float) -> None:
        """Move the job to the end of the queue: its time in the queue begins now."""
        self._become(queued_at=now)

    def end(self, state: State, failure: str, now: float) -> None:
        """Note that the object has ended."""
        self._become(state=state, reason=failure, ended_at=now)

    def set_unbound(self, why: str) -> None:
        """Set why pods are not bound; "" once they are."""
        if why != self.status.unbound:
            self._become(unbound=why)

    def set_suspended_by_user(self, is_suspended: bool) -> None:
        """Set whether the user has suspended the job and the queue has not marked it again yet."""
        self._become(is_suspended_by_user=is_suspended)

    # --- derived values

    @property
    def state(self) -> State:
        """The state of its status."""
        return self.status.state

    @property
    def has_nodes(self) -> bool:
        """Whether it was given nodes, or runs outside the queue."""
        return self.status.state.has_nodes

    @property
    def is_submitted(self) -> bool:
        """Whether the job has pending parts."""
        return bool(self.pending)

    @property
    def is_renewed(self) -> bool:
        """Whether the job is over but its workload wants pods again. These pods become another job."""
        return self.workload is group.WORKLOAD_KIND and self.state.is_over and not self.demand.end

    @property
    def kind_name(self) -> str:
        """The kind of the workload, as in the name of its FluxJob."""
        return group.KIND if self.workload is group.WORKLOAD_KIND else self.workload.kind.kind

    def amounts_of(self, name: str) -> resources.Amounts:
        """The amounts of a pod of a set. For a set that no longer exists, the maximum over all sets."""
        if not self.request:
            return {"pod": 1}
        found = self.request.sets.get(name)
        if name in self.enlarged:
            return resources.largest([self.enlarged[name][1], *([found.amounts] if found else [])])
        return found.amounts if found else resources.largest(one.amounts for one in self.request.sets.values())

    @property
    def wanted(self) -> dict[str, int]:
        """The pods of the next request, by set: all that wait, or one if each starts by itself."""
        return {name: pods if self.demand.together else 1 for name, pods in self.backlog.lacks.items() if pods}

    @property
    def holds(self) -> resources.Amounts:
        """The amounts that the job has on its queue's nodes, and the job itself as one job."""
        return {
            **resources.total(amounts for slot in self.slots for amounts in (slot.amounts, slot.beyond)),
            JOB: 1,
        }

    @property
    def needs(self) -> resources.Amounts:
        """The amounts of the next request."""
        needs = resources.total(
            {kind: amount * pods for kind, amount in self.amounts_of(name).items()}
            for name, pods in self.wanted.items()
        )
        return needs if self.has_nodes else {**needs, JOB: 1}

    @property
    def seconds(self) -> int:
        """The duration in seconds; 0 if it is not known."""
        return int(self.request.duration) if self.request else 0

    @property
    def planned_end(self) -> float:
        """The time by which the pods should be gone according to the duration; 0 if that is not known.

        It equals the end of the allocation with which the job was started, which counts from the whole second of the
        start. A later end would break promises that begin then.
        """
        if self.request is None or not self.request.duration:
            return 0
        return int(self.status.started_at) + ceil(self.request.duration + LATENCY)
