"""Records of what happened to jobs, for the store of the cluster queue.

A record depends only on the job's FluxJob, whose status is written before its effects. A restarted process produces the
same records again, and the store keeps each one once. Pure.
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
    """A job according to its FluxJob.

    Times are seconds since the epoch, 0 for none: `started_at` is the current start, `requeued_at` the last return to
    the queue. `note` says why the job is refused.
    """

    # The uid of the job's object. A group of pods has no object: its `uid` is its name and job id. For a job of another
    # scheduler, the FluxJob's uid.
    uid: str
    # The FluxJob's version, which rises with each change.
    version: int
    jobid: int
    namespace: str
    name: str
    kind: str
    queue: str
    priority: int
    # The number of pods.
    width: int
    duration: float
    state: State
    nodes: str
    # The number of slots that the job has on nodes now.
    held: int
    queued_at: float
    started_at: float
    requeued_at: float
    ended_at: float
    note: str


class Record(Struct, frozen=True):
    """A job as seen at a time. `is_gone`: its object was deleted before the job ended."""

    facts: Facts
    at: float
    is_gone: bool = False


class Chronicle:
    """The facts of all jobs by the uid of their workload, and the records since the last `take`.

    Before the first `take`, jobs are only collected: `all_now` returns them, and no records are made.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._facts: dict[str, Facts] = {}
        self._records: list[Record] = []

    def see(self, uid: str, fluxjob: Object, now: float) -> None:
        """Process the current FluxJob of a job."""
        facts, before = facts_of(uid, fluxjob), self._facts.get(uid)
        if facts is None:
            return
        self._facts[uid] = facts
        if self._has_begun and (before is None or _recorded(before) != _recorded(facts)):
            self._records.append(Record(facts, now))

    def see_external(self, fluxjob: Object, is_gone: bool, now: float) -> None:
        """Process the FluxJob of another scheduler's job, which has no object and ends with its FluxJob."""
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
        """Forget a job whose object is gone."""
        facts = self._facts.pop(uid, None)
        if facts is not None and not facts.state.is_over:
            self._records.append(Record(facts, now, is_gone=True))

    def take(self) -> tuple[Record, ...]:
        """The records since the last call, in order."""
        found, self._records, self._has_begun = tuple(self._records), [], True
        return found

    def all_now(self, now: float) -> list[Record]:
        """A record of each known job."""
        return [Record(facts, now) for facts in self._facts.values()]


def _recorded(facts: Facts) -> tuple[Any, ...]:
    """The facts whose change is worth a record: all but the version."""
    return tuple(getattr(facts, name) for name in Facts.__struct_fields__ if name != "version")


def facts_of(uid: str, fluxjob: Object) -> Facts | None:
    """The facts of the job of workload `uid`, from its FluxJob; None while that has no status."""
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
