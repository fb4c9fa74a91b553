"""What the policy keeps while jobs are active: associations, queues and jobs, with the counts that limits look at.

A job is counted in one place: SCHED, RUN or neither. The place is changed here and nowhere else, in all counts at once,
so the counts are always those of the jobs that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.formats.spec.job_state import NEW, RUN, SCHED
from headrace.sched.accounting.values import UNLIMITED, AssociationRow, QueueRow, Request
from headrace.sched.accounting.waiting import HOLD, START, Group, GroupKey

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State


class Counts:
    """How many jobs, nodes and cores run or are in SCHED."""

    __slots__ = ("run_cores", "run_jobs", "run_nodes", "sched_cores", "sched_jobs", "sched_nodes")

    def __init__(self) -> None:
        self.run_jobs = self.run_nodes = self.run_cores = 0
        self.sched_jobs = self.sched_nodes = self.sched_cores = 0

    def count(self, request: Request, place: int, sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) a job at a place."""
        if place == RUN:
            self.run_jobs += sign
            self.run_nodes += sign * request.nodes
            self.run_cores += sign * request.cores
        elif place == SCHED:
            self.sched_jobs += sign
            self.sched_nodes += sign * request.nodes
            self.sched_cores += sign * request.cores


class Association:
    """A user in a bank: the row of the table, the counts, and the groups of its jobs that wait for headroom.

    `is_known` is False for a user whom the tables do not have. Nothing limits such an association. `queue_factor` is
    that of the job that came last, for `query`.
    """

    __slots__ = (
        "active_jobs",
        "groups",
        "is_known",
        "projects",
        "queue_factor",
        "queues",
        "row",
        "used",
        "used_in_queues",
    )

    def __init__(self, row: AssociationRow, is_known: bool = True) -> None:
        self.is_known = is_known
        self.set_row(row)
        self.active_jobs = 0
        self.queue_factor = 0
        self.used = Counts()
        self.used_in_queues: dict[str, Counts] = {}
        self.groups: dict[GroupKey, Group] = {}

    def set_row(self, row: AssociationRow) -> None:
        """Take a new row; the counts stay."""
        self.row = row
        self.queues = _listed(row.queues)
        self.projects = _listed(row.projects)


class Queue:
    """A queue. `row` is None while the tables do not have it. `used` counts the jobs of all users.

    `starts` has the groups of jobs that wait in SCHED for headroom, by user, bank and key.
    """

    __slots__ = ("name", "row", "starts", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.row: QueueRow | None = None
        self.used = Counts()
        self.starts: dict[tuple[int, str, GroupKey], Group] = {}


class Job:
    """An active job.

    `place` is SCHED or RUN while the job is counted there, NEW otherwise. `holds` are the dependencies that the policy
    added. `group` is the group in which the job waits for headroom. `is_judged` is False for a job that was accepted
    before its association was known.
    """

    __slots__ = (
        "association",
        "group",
        "holds",
        "is_judged",
        "order",
        "place",
        "priority",
        "queue",
        "request",
        "used_in_queue",
    )

    def __init__(self, request: Request, association: Association, queue: Queue) -> None:
        self.request = request
        self.place: State = NEW
        self.holds: tuple[str, ...] = ()
        self.group: Group | None = None
        self.is_judged = True
        self.order = self.priority = 0
        self._bind(association, queue)

    def _bind(self, association: Association, queue: Queue) -> None:
        self.association = association
        self.queue = queue
        used = association.used_in_queues.get(queue.name)
        if used is None:
            used = association.used_in_queues[queue.name] = Counts()
        self.used_in_queue = used
        association.active_jobs += 1
        if queue.row is not None:
            association.queue_factor = queue.row.priority

    def count(self, place: State) -> None:
        """Count the job at another place."""
        for counts in (self.association.used, self.used_in_queue, self.queue.used):
            counts.count(self.request, self.place, -1)
            counts.count(self.request, place, 1)
        self.place = place

    def wait(self, moment: int) -> None:
        """Let the job wait for a moment, in the order of its arrival for HOLD and else of its priority."""
        self.leave()
        request = self.request
        key = GroupKey(moment, request.queue, request.nodes, request.cores)
        if moment == HOLD:
            key = key._replace(holds=self.holds)
        elif moment == START:
            key = key._replace(shape=request.shape, duration=request.duration)
        groups = self.association.groups
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(key)
            if moment == START:
                row = self.association.row
                self.queue.starts[row.userid, row.bank, key] = group
        self.order = 0 if moment == HOLD else -self.priority
        group.add(request.id, self)

    def leave(self) -> None:
        """Let the job wait no longer."""
        group = self.group
        if group is None:
            return
        group.discard(self)
        if not group.size:
            del self.association.groups[group.key]
            if group.key.moment == START:
                row = self.association.row
                del self.queue.starts[row.userid, row.bank, group.key]

    def rebind(self, request: Request, association: Association, queue: Queue) -> None:
        """Count the job for another request, association or queue."""
        place = self.place
        self.count(NEW)
        self.association.active_jobs -= 1
        self.request = request
        self._bind(association, queue)
        self.count(place)


def unlimited(userid: int) -> AssociationRow:
    """The row of an association without limits and with average fair share."""
    most = UNLIMITED
    return AssociationRow(userid, "", "", 0.5, most, 0, "", 1, "", "", most, most, most)


def _listed(text: str) -> list[str]:
    """The items of a comma list; a blank text has none."""
    return text.split(",") if text.strip() else []
