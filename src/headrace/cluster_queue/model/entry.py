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


# Seconds that a job has its nodes for beyond its duration: its pods are bound and started, and seen to have ended. A
# plan without them would be broken by each end, and what is planned anew may come much later than before.
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
    """Pods of a job that wait for slots, since their time in the queue (seconds since the epoch)."""

    pods: int
    since: float


# How many pods of one job are in front of the graph, if each starts by itself.
WINDOW = 64


def waits_of(before: list[Wait], pods: int, together: bool, since: float) -> list[Wait]:
    """The waits of a job that lacks so many pods. What has come since `before` waits from `since` on, unless it starts
    together with what waits already; of what is wanted no more, the last goes.
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
    """Waits without a part of one of them, which has slots now."""
    at = next(index for index, one in enumerate(waits) if one.since == part.since)
    left = waits[at].pods - part.pods
    return [*waits[:at], *([Wait(left, part.since)] if left else []), *waits[at + 1 :]]


def waits_again(waits: list[Wait], undersized: Iterable[float]) -> list[Wait]:
    """Waits, and those anew who have waited since these times before."""
    found = Counter({one.since: one.pods for one in waits})
    found.update(undersized)
    return [Wait(pods, since) for since, pods in sorted(found.items())]


def parts_of(waits: list[Wait], together: bool, window: int = WINDOW) -> list[Wait]:
    """What a job asks of the graph for its waits, each by a request of its own, in order."""
    if together:
        return waits
    return list(islice((Wait(1, wait.since) for wait in waits for _ in range(wait.pods)), window))


def growing(entry: Entry, why: str) -> str:
    """Why a job waits, or those of its pods that do while others have nodes."""
    pods = sum(one.pods for one in entry.backlog.waits)
    if not entry.has_nodes or not why:
        return why
    return f"{pods} pod{' waits' if pods == 1 else 's wait'}: {why}" if pods else ""


class Backlog(Struct, frozen=True):
    """The pods of a job that have no slots: since when they wait, in order, and how many these are by set.

    `undersized` are times since when pods waited whose slots have become too small for them: they wait again.
    """

    waits: list[Wait] = []
    lacks: dict[str, int] = {}
    undersized: tuple[float, ...] = ()


class Shape(NamedTuple):
    """What the parts of a job in front of the graph ask for: the sets of which there are `pods` in each, what these ask
    for, and how many pods of each, if they are of several sets.
    """

    pods: tuple[str, ...]
    sets: tuple[tuple[str, SetRequest, Any], ...]
    numbers: dict[str, int] | None
    duration: float
    within: str
    priority: int


class Part(NamedTuple):
    """What stands in front of the graph of one of a job's waits."""

    wait: Wait
    shape: Shape


class Standing(Struct, frozen=True):
    """Where a job stands in the order of its queue. `is_ready`: what waits of it may be there, if its namespace's quota
    lets it; `excess`: which limits of the quota it is over. Position and estimated start are 0 where they are not
    known.
    """

    is_ready: bool = False
    excess: str = ""
    position: int = 0
    estimate: float = 0
    is_reserved: bool = False


class Status(Struct, frozen=True, kw_only=True):
    """Where a job stands, as the status of its FluxJob says. Times are seconds since the epoch, 0 for none.

    `reason` is why it waits, or what is wrong with it; `unbound` why its pods are not bound, until all are.
    """

    queued_at: float
    state: State = State.HELD
    reason: str = ""
    unbound: str = ""
    started_at: float = 0
    ended_at: float = 0
    is_suspended_by_user: bool = False


class Awaited(Struct, frozen=True):
    """Pods that were given to nodes and are not bound yet: when each was pinned, by uid, and which of them were not
    bound in time. `avoided` are nodes to which pods were not bound in time: others that have room are preferred.
    """

    pinned_at: dict[str, float] = {}
    late: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()


class Published(Struct, frozen=True):
    """When the status was last asked to be written, and the position and estimate in it. `is_due`: a status that
    differs in position or counts alone is to be written.
    """

    at: float
    forecast: tuple[int, int] = (0, 0)
    is_due: bool = False


class Entry(Struct, eq=False, kw_only=True):
    """A workload in its queue: what it wants, what it was given, and where it stands. What of it must outlast the
    process stands in its FluxJob.

    `demand`, `assignment` and `status` are frozen values. All below is the progress of steps: each field is written in
    one file (`tests/cluster_queue/model/test_cluster_queue_entry.py`).
    """

    uid: str
    workload: WorkloadKind
    jobid: int
    queue: str
    demand: Demand
    assignment: Assignment = Assignment()
    status: Status

    # Admit: the object as last seen, what it asks of the graph (None where that is not known, or the job is refused),
    # and its priority.
    item: Object
    request: Request | None = None
    priority: int = 0
    # Order: pods without slots, what of these is in front of the graph, by id, and where the job stands there.
    backlog: Backlog = Backlog()
    pending: dict[int, Part] = {}
    standing: Standing = Standing()
    # Assign: the slots on the nodes that are not given back, once they are taken, and holds of what is given back.
    # These end when the status says so: until then, a process that begins anew would take it for the job's.
    slots: list[Slot] = []
    has_slots: bool = False
    leaving: list[int] = []
    # By set, a pod (its uid) that asks for more than the templates say, as admission has added to it, and how much.
    enlarged: dict[str, tuple[str, resources.Amounts]] = {}
    # Report: pods that are not bound yet, and what was last asked to be written.
    awaited: Awaited = Awaited()
    published: Published

    # --- what becomes of it

    def _become(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)

    def explain(self, reason: str) -> None:
        """It waits for this reason, or this is wrong with it."""
        if reason != self.status.reason:
            self._become(reason=reason)

    def ask(self, request: Request | None) -> None:
        """It asks for this from now on; None: what it asks for is not known."""
        self.request = request

    def refuse(self, reason: str) -> None:
        """No queue takes it; if it has nodes, it keeps them."""
        self.explain(reason)
        if not self.has_nodes:
            self.ask(None)
            self._become(state=State.REFUSED)

    def accept(self) -> None:
        """Nothing is wrong with it any more, if something was."""
        if self.state is State.REFUSED:
            self._become(state=State.HELD, reason="")

    def start(self, now: float) -> None:
        """It gets nodes: the first, or more."""
        if self.has_nodes:
            self.explain("")
        else:
            self._become(state=State.RELEASED, started_at=now, unbound="", reason="")

    def run(self) -> None:
        """All its pods run."""
        self._become(state=State.RUNNING)

    def run_outside(self, now: float) -> None:
        """Pods of it run that the queue did not let: it is never shown as waiting while they do."""
        self._become(state=State.RUNNING, started_at=self.status.started_at or now, reason="")

    def requeue(self, reason: str = "") -> None:
        """It has given all back, and waits anew from its time in the queue on."""
        self._become(state=State.HELD, started_at=0, reason=reason)

    def come_anew(self, now: float) -> None:
        """Its time in the queue begins now."""
        self._become(queued_at=now)

    def end(self, state: State, failure: str, now: float) -> None:
        """Its object has ended."""
        self._become(state=state, reason=failure, ended_at=now)

    def set_unbound(self, why: str) -> None:
        """Why pods of it are not bound; "" once they are."""
        if why != self.status.unbound:
            self._become(unbound=why)

    def set_suspended_by_user(self, is_suspended: bool) -> None:
        """Whether its user has suspended it, and it does not have the mark of the queue again yet."""
        self._become(is_suspended_by_user=is_suspended)

    # --- what follows from it

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
        """Whether something of it is in front of its queue's graph."""
        return bool(self.pending)

    @property
    def is_renewed(self) -> bool:
        """Whether it is over, and its workload wants pods again: those that have come since are another job."""
        return self.workload is group.WORKLOAD_KIND and self.state.is_over and not self.demand.end

    @property
    def kind_name(self) -> str:
        """The kind of the workload, as in the name of its FluxJob."""
        return group.KIND if self.workload is group.WORKLOAD_KIND else self.workload.kind.kind

    def amounts_of(self, name: str) -> resources.Amounts:
        """What a pod of a set asks for; of a set that it has no more, what is enough for each of its pods."""
        if not self.request:
            return {"pod": 1}
        found = self.request.sets.get(name)
        if name in self.enlarged:
            return resources.largest([self.enlarged[name][1], *([found.amounts] if found else [])])
        return found.amounts if found else resources.largest(one.amounts for one in self.request.sets.values())

    @property
    def wanted(self) -> dict[str, int]:
        """How many pods it asks for next, by set: for all that wait, or the first of them if each starts by itself."""
        return {name: pods if self.demand.together else 1 for name, pods in self.backlog.lacks.items() if pods}

    @property
    def holds(self) -> resources.Amounts:
        """What it has of its queue's nodes, and itself as one job."""
        return {
            **resources.total(amounts for slot in self.slots for amounts in (slot.amounts, slot.beyond)),
            JOB: 1,
        }

    @property
    def needs(self) -> resources.Amounts:
        """What it asks for next."""
        needs = resources.total(
            {kind: amount * pods for kind, amount in self.amounts_of(name).items()}
            for name, pods in self.wanted.items()
        )
        return needs if self.has_nodes else {**needs, JOB: 1}

    @property
    def seconds(self) -> int:
        """Its duration; 0 if that is not known."""
        return int(self.request.duration) if self.request else 0

    @property
    def planned_end(self) -> float:
        """When its pods should be gone, by its duration; 0 if that is not known. It is the end of the allocation by
        which the job was started, from that whole second on: a later end would break promises that begin then.
        """
        if self.request is None or not self.request.duration:
            return 0
        return int(self.status.started_at) + ceil(self.request.duration + LATENCY)
