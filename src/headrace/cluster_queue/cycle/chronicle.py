"""What has happened to jobs, for the store of the cluster queue.

What is told of a job follows from its FluxJob alone, whose status is written before its effects: a core that begins
anew tells the same of it again, and the store takes that in once. Pure.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.conditions import condition
from headrace.k8s.objects.timestamps import seconds_of

from ..model.entry import State
from ..model.fluxjobs import REQUEUED, jobid_of
from ..workloads import group

Object = dict[str, Any]


class Facts(Struct, frozen=True, kw_only=True):
    """A job as its FluxJob tells it.

    `uid` is that of its object; a group of pods, which is none, has its name and job id there, and a job of another
    scheduler its FluxJob's uid. `version` is the
    FluxJob's, and rises with each of its changes. `width` is the number of its pods, `held` that of the places on nodes
    that it has now. Times are seconds since the epoch, 0 for none: `started_at` of its current start, `requeued_at`
    of its last return to the queue, if it has one. `note` says why it is refused.
    """

    uid: str
    version: int
    jobid: int
    namespace: str
    name: str
    kind: str
    queue: str
    priority: int
    width: int
    duration: float
    state: State
    nodes: str
    held: int
    queued_at: float
    started_at: float
    requeued_at: float
    ended_at: float
    note: str


class Record(Struct, frozen=True):
    """What was seen of a job at a time; `is_gone`: its object was deleted before it ended."""

    facts: Facts
    at: float
    is_gone: bool = False


class Chronicle:
    """The facts of all jobs by the uid of their workload, and the records since the last `take`.

    Before the first `take` what there is has been seen for the first time: `all_now` tells it, and no record.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._facts: dict[str, Facts] = {}
        self._records: list[Record] = []

    def see(self, uid: str, fluxjob: Object, now: float) -> None:
        """Take in a FluxJob as it is now."""
        facts, before = facts_of(uid, fluxjob), self._facts.get(uid)
        if facts is None:
            return
        self._facts[uid] = facts
        if self._has_begun and (before is None or _recorded(before) != _recorded(facts)):
            self._records.append(Record(facts, now))

    def see_external(self, fluxjob: Object, is_gone: bool, now: float) -> None:
        """Take in the FluxJob of a job of another scheduler, which has no object and has ended when that is gone."""
        uid = fluxjob["metadata"]["uid"]
        facts = self._facts.get(uid)
        if not is_gone:
            self.see(uid, fluxjob, now)
        elif facts and facts.state.has_nodes:
            del self._facts[uid]
            self._records.append(Record(replace(facts, state=State.FINISHED, held=0, ended_at=now), now))
        else:
            self.forget(uid, now)

    def forget(self, uid: str, now: float) -> None:
        """The object of a job is gone."""
        facts = self._facts.pop(uid, None)
        if facts is not None and not facts.state.is_over:
            self._records.append(Record(facts, now, is_gone=True))

    def take(self) -> tuple[Record, ...]:
        """The records since the last call, in order."""
        found, self._records, self._has_begun = tuple(self._records), [], True
        return found

    def all_now(self, now: float) -> list[Record]:
        """A record of each job that there is."""
        return [Record(facts, now) for facts in self._facts.values()]


def _recorded(facts: Facts) -> tuple[Any, ...]:
    """What of a job is worth a record: not its version."""
    return tuple(getattr(facts, name) for name in Facts.__struct_fields__ if name != "version")


def facts_of(uid: str, fluxjob: Object) -> Facts | None:
    """What a FluxJob tells of the job of the workload `uid`; None while it has no status."""
    meta, spec, published = fluxjob["metadata"], fluxjob.get("spec") or {}, fluxjob.get("status") or {}
    if not published:
        return None
    state, is_group = State(published.get("state", "Held")), spec.get("type") == group.WORKLOAD_KIND.number
    jobid = jobid_of(fluxjob)
    # Only the FluxJob of another scheduler's job has no owner.
    owners = meta.get("ownerReferences") or ({"kind": "External"},)
    nodes = len(Hostlist.parse(published.get("nodes", "")))
    freed = len(Idset.parse(published.get("freed", "")))
    released = condition(published, "Released")
    was_requeued = released.get("reason") == REQUEUED
    return Facts(
        uid=f"{uid}/{jobid}" if is_group else uid,
        version=int(meta.get("resourceVersion") or 0),
        jobid=jobid,
        namespace=meta["namespace"],
        name=spec.get("name", ""),
        kind=group.KIND if is_group else owners[0]["kind"],
        queue=spec.get("queue", ""),
        priority=int(spec.get("priority", 0)),
        width=nodes or int(spec.get("nodes", 0)),
        duration=float(spec.get("duration", 0)),
        state=state,
        nodes=published.get("nodes", ""),
        held=nodes - freed if state.has_nodes else 0,
        queued_at=_moment(published.get("queuedAt")),
        started_at=_moment(published.get("startedAt")),
        requeued_at=_moment(released.get("lastTransitionTime")) if was_requeued else 0,
        ended_at=_moment(published.get("endedAt")),
        note=published.get("reason", "") if state is State.REFUSED else "",
    )


def _moment(text: str | None) -> float:
    return seconds_of(text) if text else 0
