"""FluxJobs in the API server: how one is made for a job, and how its status is read. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.conditions import condition
from headrace.k8s.objects.timestamps import seconds_of, text_of

from ..names import EXTERNAL, FLUXJOBS, JOBID
from ..workloads import group
from .entry import Entry, State, Wait
from .request import jobspec_of

Object = dict[str, Any]

_LONGEST_NAME = 253
# The largest job id: the store and gRPC use signed 64-bit numbers.
_MAX_ID = 2**63 - 1
# A DNS subdomain (RFC 1123), which the API server requires as a name.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SUBMIT = {State.HELD: "statusNew", State.REFUSED: "statusError"}
# Positions up to this one are exact.
EXACT = 50
# The reason of the condition Released of a job that was queued again.
REQUEUED = "Requeued"


def jobid_in(item: Object) -> int:
    """The job id in an object's label; 0 for none or an invalid one, which users may write."""
    return _id_of((item["metadata"].get("labels") or {}).get(JOBID))


def jobid_of(fluxjob: Object) -> int:
    """The job id of a FluxJob; 0 for none.

    The id in the status counts, which only this program writes. Until there is one, it is the id in the label, which
    users may edit.
    """
    return _id_of((fluxjob.get("status") or {}).get("jobid")) or jobid_in(fluxjob)


def _id_of(text: object) -> int:
    found = str(text)
    is_number = found.isascii() and found.isdigit() and len(found) <= len(str(_MAX_ID))
    return int(found) if is_number and int(found) <= _MAX_ID else 0


def is_external(fluxjob: Object) -> bool:
    """Whether a FluxJob belongs to a job of another scheduler, which has no object."""
    return bool((fluxjob.get("spec") or {}).get("type") == EXTERNAL and jobid_of(fluxjob))


def name_of(kind: str, name: str) -> str:
    """The name of the FluxJob of an object.

    A name that would be too long is cut. The name of a group is the value of a label, which may contain characters that
    names of objects cannot: these are replaced. A hash keeps such names distinct.
    """
    full = f"{name}-{kind.lower()}"
    is_name = _SUBDOMAIN.fullmatch(name)
    if is_name and len(full) <= _LONGEST_NAME:
        return full
    mark = f"{hashlib.sha256(name.encode()).hexdigest()[:10]}-{kind.lower()}"
    plain = name if is_name else re.sub("[^a-z0-9]+", "-", name.lower())
    return f"{plain[: _LONGEST_NAME - len(mark) - 1].rstrip('.')}-{mark}"


def made_of(entry: Entry, reserves: bool) -> Object:
    """The FluxJob of a job. `reserves`: the policy of its queue makes reservations."""
    meta = entry.item["metadata"]
    return {
        "apiVersion": FLUXJOBS.api_version,
        "kind": FLUXJOBS.kind,
        "metadata": {
            "name": name_of(entry.kind_name, meta["name"]),
            "namespace": meta["namespace"],
            "labels": {JOBID: str(entry.jobid)},
            "ownerReferences": _owners(entry),
        },
        "spec": {
            **_asked(entry, reserves),
            "type": entry.workload.number,
            "name": meta["name"],
            "queue": entry.queue,
        },
    }


def _asked(entry: Entry, reserves: bool) -> Object:
    """The part of the spec that may change while a job waits."""
    asked = entry.request
    jobspec = jobspec_of(entry, asked) if asked and not entry.demand.missing else {}
    return {
        "jobspec": json.dumps(jobspec, separators=(",", ":")) if jobspec else "",
        "duration": int(asked.duration) if asked else 0,
        "nodes": entry.demand.pods,
        "priority": entry.priority,
        "reservation": reserves,
    }


def changes_of(entry: Entry, reserves: bool, fluxjob: Object) -> Object:
    """The merge patch that brings spec and owners of a job's FluxJob up to date; {} for no change."""
    spec, owners = _changed_spec(entry, reserves, fluxjob.get("spec") or {}), _owners(entry)
    published = {one["uid"] for one in fluxjob["metadata"].get("ownerReferences") or ()}
    # The FluxJob may have been made when only the first pods of its group existed.
    is_grown = (
        not entry.demand.missing and not entry.state.is_over and not published.issuperset(one["uid"] for one in owners)
    )
    metadata = {"ownerReferences": owners} if is_grown else {}
    return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}


def _changed_spec(entry: Entry, reserves: bool, published: Object) -> Object:
    """The changes to the spec of a job's FluxJob; {} for none. `reserves` is as for `made_of`.

    The job waits, or it got its nodes in the same step as what it was missing (`Demand.missing`).

    An object without an end of its own changes its number of pods only when someone asks for that, so the change is
    written while it runs, too. Others count down with their pods, so only an increase is written.

    A jobspec that differs only in its constraints is not worth a write: they describe the same nodes differently once
    nodes have taints.
    """
    if not entry.request or entry.state.is_over:
        return {}
    wanted = _asked(entry, reserves)
    if wanted["jobspec"] and not published.get("jobspec"):
        return wanted
    if entry.state is State.HELD:
        differs = any(published.get(key) != wanted[key] for key in wanted if key != "jobspec")
        return wanted if differs or _asks_for_other(published.get("jobspec", ""), wanted["jobspec"]) else {}
    if entry.workload.lasts:
        return wanted if any(published.get(key) != wanted[key] for key in ("duration", "nodes", "priority")) else {}
    return {"nodes": wanted["nodes"]} if wanted["nodes"] > published.get("nodes", 0) else {}


def _asks_for_other(published: str, wanted: str) -> bool:
    """Whether a jobspec asks for other resources than the published one; "" stands for an unknown jobspec."""
    if "" in (published, wanted) or published == wanted:
        return False
    return bool(json.loads(published)["resources"] != json.loads(wanted)["resources"])


def _owners(entry: Entry) -> list[Object]:
    """The owners of the FluxJob. The FluxJob of a group is deleted with the last of its pods."""
    kind, found = entry.workload.kind, entry.workload.objects(entry.item)
    alone = len(found) == 1 and entry.workload is not group.WORKLOAD_KIND
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    names = ({"name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in found)
    return [{**head, **one, "controller": alone, "blockOwnerDeletion": False} for one in names]


def status_of(entry: Entry, before: Object, pods: Object, now: float) -> Object:
    """The complete status of a job. `pods` are its counts, `before` is the previous status."""
    status = entry.status
    state = State.HELD if status.is_suspended_by_user and entry.has_nodes else status.state
    has_nodes, waits = state.has_nodes, state is State.HELD
    position, estimate = forecast_of(entry)
    is_reserved = waits and entry.standing.is_reserved
    quota = "WithinQuota" if not entry.standing.excess else "OverQuota"
    conditions = {
        "Quota": (not entry.standing.excess, quota, entry.standing.excess),
        "Reserved": (is_reserved, "Planned" if is_reserved else "NotPlanned", ""),
        "Released": (has_nodes or state.is_over, _why_released(state, before), ""),
    }
    times = {"queuedAt": status.queued_at, "startedAt": 0 if waits else status.started_at, "endedAt": status.ended_at}
    return {
        "submitStatus": _SUBMIT.get(state, "statusSubmit"),
        "state": state.value,
        "jobid": str(entry.jobid),
        **({"reason": status.reason or status.unbound} if status.reason or status.unbound else {}),
        **({"position": position} if waits and position else {}),
        **({"estimatedStart": text_of(estimate)} if waits and estimate else {}),
        **({} if waits else nodes_of(entry)),
        **({"pods": pods} if pods and has_nodes else {}),
        **{name: text_of(moment) for name, moment in times.items() if moment},
        "conditions": [_condition(name, *holds, before, now) for name, holds in conditions.items()],
    }


def nodes_of(entry: Entry) -> Object:
    """The part of the status about a job's nodes: its nodes, the freed ones, and the waits for more."""
    freed = {"freed": Idset(entry.assignment.freed).encode()} if entry.assignment.freed and entry.has_nodes else {}
    waits = [{"pods": one.pods, "since": text_of(one.since)} for one in entry.backlog.waits] if entry.has_nodes else []
    given = {"nodes": Hostlist(entry.assignment.nodes).encode()} if entry.assignment.nodes else {}
    return {**given, **_sets_of(entry), **freed, **({"waits": waits} if waits else {})}


def _sets_of(entry: Entry) -> Object:
    """The set of each node, unless it is obvious: a job of several sets may want pods of only one."""
    names = dict.fromkeys(entry.assignment.sets)
    if not names or max(len(entry.demand.sets), len(names)) < 2:
        return {}
    indexes = {name: [index for index, own in enumerate(entry.assignment.sets) if own == name] for name in names}
    return {"sets": [{"name": name, "indexes": Idset(own).encode()} for name, own in indexes.items()]}


def sets_in(published: Object, nodes: int, only: str) -> list[str]:
    """The set name of each of the `nodes` nodes in a status. `only` is used if the status has none."""
    names = [only] * nodes
    for one in published.get("sets") or ():
        for index in Idset.parse(one["indexes"]):
            if index < nodes:
                names[index] = one["name"]
    return names


def waits_in(published: Object) -> list[Wait]:
    """The waits in the status of a job with nodes."""
    return [Wait(one["pods"], seconds_of(one["since"])) for one in published.get("waits") or ()]


def _why_released(state: State, before: Object) -> str:
    """The reason of the condition Released: it tells a requeued job from one that has never had nodes."""
    was = condition(before, "Released")
    has_been = was.get("status") == "True" or was.get("reason") == REQUEUED
    return REQUEUED if state is State.HELD and has_been else state.value


def _condition(name: str, holds: bool, reason: str, message: str, before: Object, now: float) -> Object:
    status = "True" if holds else "False"
    was = condition(before, name)
    since = was.get("lastTransitionTime") if was.get("status") == status else None
    published = {"message": message} if message else {}
    return {"type": name, "status": status, "reason": reason, **published, "lastTransitionTime": since or text_of(now)}


def moment_of(text: str | None) -> float:
    """The time in a field (seconds since the epoch); 0 if it is not set."""
    return seconds_of(text) if text else 0


def forecast_of(entry: Entry) -> tuple[int, int]:
    """The position and the estimate (seconds) that a waiting job's status shows; 0 if not known."""
    return shown_position(entry.standing.position), int(entry.standing.estimate)


def forecast_in(status: Object) -> tuple[int, int]:
    """The position and the estimate that a status shows."""
    return int(status.get("position", 0)), int(moment_of(status.get("estimatedStart")))


def shown_position(position: int) -> int:
    """A position as in the status: above 50 with two leading digits, so that few changes are written."""
    if position <= EXACT:
        return position
    step = 10 ** (len(str(position)) - 2)
    return int(position // step * step)
