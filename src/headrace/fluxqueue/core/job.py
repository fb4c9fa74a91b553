"""A workload in its queue, as the core knows it; what of it must outlast the core stands in its FluxJob."""

from __future__ import annotations

from enum import Enum
from math import ceil
from typing import Any

from msgspec import Struct

from .. import requests
from ..quotas import JOB
from ..workloads import Wish, Workload, group

Object = dict[str, Any]


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


class Place(Struct, eq=False):
    """Room for a pod on a node of a queue, which stands at `index` in the job's nodes; `pod` is the uid of the pod that
    has it, "" while there is none.
    """

    index: int
    node: str
    hold: int
    amounts: requests.Amounts
    queue: str
    pod: str = ""


class Asked(Struct, frozen=True, kw_only=True):
    """What a job asks of the graph: so many pods with `amounts` each, for `duration` seconds (0: not known).

    `is_apart`: no two of them on one node. `within`: the label for which their nodes have one value, "" for none.
    `left` are the fields that no plan knows of.
    """

    pods: int
    amounts: dict[str, int]
    duration: float
    constraint: Any
    is_apart: bool = False
    within: str = ""
    left: tuple[str, ...] = ()
    jobspec: Object


class Job(Struct, eq=False, kw_only=True):
    """`nodes` are those that it was given, in order, as status.nodes has them; `places` what is left of these, and
    `freed` the indexes of those that it has given back. `leaving` are holds of what it has given back, which end when
    its status tells that: until then, a core that begins anew would take it for the job's.

    `asked` is None for a job that is refused. `is_ready`: it may be in its queue's order, if its namespace's quota lets
    it; `is_submitted`: it is there; `excess`: which limits of the quota it is over. `is_placed`: its
    places have been taken. `is_due`: a status that differs in its position or counts alone is to be written.
    """

    uid: str
    workload: Workload
    item: Object
    wish: Wish
    jobid: int
    queue: str
    queued_at: float
    priority: int = 0
    state: State = State.HELD
    asked: Asked | None = None
    nodes: list[str] = []
    places: list[Place] = []
    freed: set[int] = set()
    leaving: list[int] = []
    is_ready: bool = False
    is_submitted: bool = False
    excess: str = ""
    is_placed: bool = False
    is_due: bool = False
    is_claimed: bool = True
    is_reserved: bool = False
    reason: str = ""
    position: int = 0
    estimate: float = 0
    started_at: float = 0
    ended_at: float = 0
    # When the status was last asked to be written, with which position and estimate.
    told_at: float = 0
    told_place: tuple[int, int] = (0, 0)

    @property
    def kind_name(self) -> str:
        """The kind of the workload, as in the name of its FluxJob."""
        return group.KIND if self.workload is group.WORKLOAD else self.workload.kind.kind

    @property
    def amounts(self) -> requests.Amounts:
        return self.asked.amounts if self.asked else {"pod": 1}

    @property
    def needs(self) -> requests.Amounts:
        """What it has of its queue's nodes, or (while it waits) asks for, and itself as one job."""
        asked = self.asked
        if self.state.has_nodes or asked is None:
            return {**requests.total(place.amounts for place in self.places), JOB: 1}
        return {**{kind: amount * asked.pods for kind, amount in asked.amounts.items()}, JOB: 1}

    @property
    def seconds(self) -> int:
        """Its duration as whole seconds, rounded up; 0 if that is not known."""
        return ceil(self.asked.duration) if self.asked else 0

    @property
    def end(self) -> float:
        """When it should have ended, by its duration; 0 if that is not known."""
        return self.started_at + self.asked.duration if self.asked and self.asked.duration else 0
