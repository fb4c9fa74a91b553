"""The status of a MiniCluster (phase, reason, counts, times, conditions), and Events of changes.

Pure. Everything is derived from the objects at each call. The previous status provides only the transition times of
conditions, and facts whose objects are gone (the exit code of a deleted pod).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.formats.spec.job_state import STATE_BITS
from headrace.k8s.objects.conditions import Ended, is_suspended, job_end
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.events import Report

from .. import names
from ..names import FAILED, FINISHED, INVALID, PENDING, RUNNING, STARTING, SUSPENDED
from ..objects import GROUP_FAILED, START_TIMEOUT, SUSPENDED_BY_US, annotations_of
from . import pods
from .conditions import CANNOT_SAVE, View, conditions_of
from .job_end import end_before_the_last, is_backoff_exceeded, lead_end_of
from .observed import Object, Observed
from .progress import (
    brokers_up,
    is_lead_there,
    lead_says,
    number,
    pod_failures,
    services_trouble,
    shortage,
    silence,
    still_runs,
    times_before,
    wanted_brokers,
    wanted_pods,
)

# Counts are int32 in the CustomResourceDefinition.
_MOST = (1 << 31) - 1
_ENDING = "the job has ended, its pods are stopping"
# The type and reason of the Event that is recorded when a MiniCluster enters a phase.
_EVENTS = {
    FINISHED: ("Normal", "Finished"),
    FAILED: ("Warning", "Failed"),
    INVALID: ("Warning", "Invalid"),
    SUSPENDED: ("Normal", "Suspended"),
    RUNNING: ("Normal", "Running"),
}


def status_of(observed: Observed, view: View, now: float) -> Object:
    """The status of a MiniCluster."""
    before = observed.status
    wanted = wanted_brokers(observed, view.cluster)
    ready = brokers_up(observed, wanted)
    # While the lead is ending, its exit code is unknown. The end is reported together with the exit code.
    end = None if is_lead_there(observed) else job_end(observed.job)
    lead_end = lead_end_of(observed)
    if end and lead_end and is_backoff_exceeded(end, lead_end):
        lead_end = end_before_the_last(observed, lead_end)
    phase, reason, degraded = _phase(observed, view, end, lead_end)
    spec: Object = observed.cluster.get("spec") or {}
    live = phase in (STARTING, RUNNING)
    status: Object = {
        "phase": phase,
        "reason": reason,
        "ready": f"{ready if live else 0}/{wanted}",
        "brokersUp": ready if live else 0,
        "observedGeneration": observed.cluster["metadata"].get("generation", 0),
        "size": _parallelism(observed),
        "maximumSize": max(number(spec.get("size")), number(spec.get("maxSize"))),
        "selector": f"{names.HPA_SELECTOR}={observed.name}",
        "jobid": before.get("jobid", ""),
        "times": _times(observed, phase, lead_end, end, wanted, now),
    }
    jobs = _jobs(observed, phase, reason == _ENDING, lead_end, end)
    if jobs:
        status["jobs"] = jobs
    if phase == RUNNING:
        status.update(_demand(observed))
    code = lead_end.exit_code if lead_end else before.get("exitCode")
    if code is not None and end and not _start_timeout(observed):
        status["exitCode"] = code
    failures = pod_failures(observed)
    if failures:
        status["podFailures"] = failures
    if view.restart_at is not None:
        status["restartAt"] = text_of(view.restart_at)
    status["conditions"] = conditions_of(observed, view, status, degraded, end, lead_end, now)
    return status


class _Phase(NamedTuple):
    """A phase and its reason.

    `degraded`: brokers are missing for a known reason, other than the end of the job.
    """

    name: str
    reason: str
    degraded: bool = False


def _phase(observed: Observed, view: View, end: Ended | None, lead_end: pods.LeadEnd | None) -> _Phase:
    job, before = observed.job, observed.status
    if end:
        return _ended(observed, end, lead_end)
    if job is None:
        if view.problems:
            return _Phase(INVALID, "; ".join(view.problems))
        if before.get("phase") in (FINISHED, FAILED) and not view.waits_for:
            return _Phase(before["phase"], before.get("reason", ""))
        taken = ", ".join(observed.taken)
        taken = f"{taken} exists but does not belong to this MiniCluster" if taken else ""
        return _Phase(PENDING, view.waits_for or taken or observed.refused)
    if job_end(job):
        phase = RUNNING if before.get("phase") == RUNNING else STARTING
        return _Phase(phase, _cut_short(observed) or _ENDING)
    if is_suspended(job):
        return _Phase(SUSPENDED, _why_suspended(observed, job))
    return _live_phase(observed, view)


def _live_phase(observed: Observed, view: View) -> _Phase:
    """The phase of a MiniCluster whose Job is neither suspended nor ended."""
    before, current, lead = observed.status, observed.current_pods, observed.lead_pod
    wanted = wanted_brokers(observed, view.cluster)
    ready = brokers_up(observed, wanted)
    trouble, services = shortage(observed), services_trouble(observed)
    count = f"{sum(map(pods.is_running, current))} of {wanted_pods(observed)} pods"
    refused = f"a change is not applied: {'; '.join(view.problems)}" if view.problems else ""
    lead_ready = lead_says(observed) or (lead is not None and pods.is_ready(lead))
    quorum = number((observed.cluster.get("spec") or {}).get("minSize")) or wanted
    if lead_ready and (ready >= min(quorum, wanted) or before.get("phase") == RUNNING):
        short = f"{ready} of {wanted} brokers up" if ready < wanted else ""
        why = _joined(silence(observed), trouble, _lost_keys(observed), refused)
        degraded = bool(short and why and not view.waits_for)
        return _Phase(RUNNING, view.waits_for or _joined(short, why, services), degraded)
    if still_runs(observed):
        if lead is not None and pods.is_node_lost(lead):
            return _Phase(RUNNING, _joined(f"{ready} of {wanted} brokers up", trouble, refused), degraded=True)
        # The pods end one after another. The Job ends after the last container of the lead.
        return _Phase(RUNNING, _ENDING)
    if not any(map(pods.is_scheduled, current)):
        return _Phase(PENDING, _joined(count, trouble, services, refused))
    all_run = all(map(pods.is_running, current)) and len(current) >= wanted_pods(observed)
    progress = f"{ready} of {wanted} brokers up" if all_run else count
    return _Phase(STARTING, _joined(progress, silence(observed), trouble, services, refused))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _why_suspended(observed: Observed, job: Object) -> str:
    if is_suspended(observed.cluster):
        return ""
    return (
        "its pods start again"
        if SUSPENDED_BY_US in annotations_of(job)
        else "its Job was suspended by another user or controller"
    )


def _lost_keys(observed: Observed) -> str:
    if observed.secret is not False:
        return ""
    text = "new pods cannot start without it: restore it, or delete Job"
    return f"Secret {names.secret_of(observed.name)} was deleted, and {text} {observed.name} to recreate all pods"


def _start_timeout(observed: Observed) -> str:
    """The shortage because of which the operator gave up the start; "" if it did not."""
    return annotations_of(observed.job).get(START_TIMEOUT, "")


def _cut_short(observed: Observed) -> str:
    """Why the operator has ended the Job; "" if it has not."""
    return _start_timeout(observed) or annotations_of(observed.job).get(GROUP_FAILED, "")


def _ended(observed: Observed, end: Ended, lead_end: pods.LeadEnd | None) -> _Phase:
    before = observed.status
    if _cut_short(observed):
        return _Phase(FAILED, _cut_short(observed))
    kept = before.get("phase") == (FAILED if end.failed else FINISHED)
    if lead_end is None and kept and before.get("reason"):
        # The pods and their termination messages are gone, so the previous reason is kept.
        return _Phase(before["phase"], before["reason"])
    code = lead_end.exit_code if lead_end else before.get("exitCode")
    said = lead_end.reason if lead_end else ""
    if not end.failed:
        if code:
            ignored = "; ignoreFailure" if (observed.cluster.get("spec") or {}).get("ignoreFailure") else ""
            return _Phase(FINISHED, f"{said or f'the job ended with exit code {code}'}{ignored}")
        return _Phase(FINISHED, said)
    if end.reason == "DeadlineExceeded":
        return _Phase(FAILED, "it ran longer than spec.deadlineSeconds")
    if is_backoff_exceeded(end, lead_end):
        # The message has no count: the Job counts its last pod failure only after it has reported its own failure.
        text = "pods have failed more often than spec.backoffLimit allows"
        return _Phase(FAILED, f"{text}: {said}" if said else text)
    if code:
        text = said or f"the job ended with exit code {code}"
        memory = "" if "OOMKilled" in text else pods.out_of_memory(observed.current_pods)
        return _Phase(FAILED, f"{text}; {memory}" if memory else text)
    return _Phase(FAILED, _joined(said or end.message or end.reason, shortage(observed)))


def _jobs(observed: Observed, phase: str, ending: bool, lead_end: pods.LeadEnd | None, end: Ended | None) -> Object:
    """The number of jobs by state, from the lead or its termination message.

    After the end of the instance no job is active. Before the instance runs, and while it starts again, there are no
    counts.
    """
    known: Object = {}
    if lead_end and lead_end.jobs:
        known = lead_end.jobs
    elif observed.lead is not None and observed.lead.jobs:
        known = observed.lead.jobs
    elif times_before(observed) and (end or phase == RUNNING):
        known = observed.status.get("jobs") or {}
    if not known:
        return {}
    over = ending or end is not None
    return {state: 0 if over and state != "inactive" else number(known.get(state)) for state in STATE_BITS}


def _demand(observed: Observed) -> Object:
    """The demand that the lead reports; the previous values while there is no connection to it."""
    if observed.lead is None:
        return {key: observed.status[key] for key in ("demandNodes", "idleSince") if key in observed.status}
    if observed.lead.state != "running":
        return {}
    since = observed.lead.idle_since
    return {
        "demandNodes": min(observed.lead.demand_nodes, _MOST),
        **({} if since is None else {"idleSince": text_of(since)}),
    }


def _times(
    observed: Observed, phase: str, lead_end: pods.LeadEnd | None, end: Ended | None, wanted: int, now: float
) -> Object:
    """The time of each phase since the last start: a resumed MiniCluster and a new lead start over."""
    old, job, current = times_before(observed), observed.job, observed.current_pods
    if phase in (PENDING, STARTING):
        old = {key: old[key] for key in old if key not in ("brokersUp", "jobStarted")}
    times: Object = {"requested": observed.cluster["metadata"].get("creationTimestamp") or text_of(now)}
    if job is None:
        return {**times, **{key: old[key] for key in old if key != "requested"}}
    times["created"] = job["metadata"].get("creationTimestamp") or text_of(now)
    if is_suspended(job):
        return times
    started = [pods.started(pod, observed.name) or (text_of(now) if pods.is_running(pod) else "") for pod in current]
    all_run = bool(current) and len(current) >= wanted_pods(observed) and all(started)
    if all_run and (phase in (PENDING, STARTING) or not old.get("podsRunning")):
        times["podsRunning"] = max(started)
    elif old.get("podsRunning"):
        times["podsRunning"] = old["podsRunning"]
    up = [pods.ready_since(pod) for pod in current if pods.is_ready(pod)]
    if old.get("brokersUp") or brokers_up(observed, wanted) >= wanted > 0:
        times["brokersUp"] = old.get("brokersUp") or (max(up) if len(up) >= wanted else text_of(now))
    # The lead's own time is exact. The operator may not see a short run before its end.
    job_started = lead_end.job_started if lead_end else ""
    began = job_started or old.get("jobStarted")
    if not began and observed.lead and observed.lead.state == "running" and _active(observed):
        began = text_of(now)
    if job_started:
        times.setdefault("brokersUp", job_started)
    if began:
        times["jobStarted"] = began
    if end:
        times["finished"] = old.get("finished") or (lead_end.finished if lead_end else "") or end.time or text_of(now)
    return times


def _active(observed: Observed) -> bool:
    jobs = observed.lead.jobs if observed.lead else {}
    return any(jobs.get(state, 0) for state in ("run", "cleanup", "inactive"))


def _parallelism(observed: Observed) -> int:
    job = observed.job
    return number((job.get("spec") or {}).get("parallelism")) if job else 0


def events_of(before: Object, after: Object) -> Iterator[Report]:
    """The Events for a change of the status: one for a new phase, and one for each new problem."""
    phase, reason = after["phase"], after.get("reason") or ""
    if phase != before.get("phase") and phase in _EVENTS:
        kind, name = _EVENTS[phase]
        yield Report(kind, name, _sentence(phase, after))
    elif phase == STARTING and before.get("phase") == SUSPENDED:
        yield Report("Normal", "Resumed", "its pods start again")
    elif phase in (PENDING, STARTING) and before.get("phase") == RUNNING:
        yield Report("Warning", "InstanceLost", f"the lead was lost, and a new one starts: {reason or phase}")
    old_size, new_size, live = before.get("size", 0), after["size"], (PENDING, STARTING, RUNNING)
    if before.get("phase") in live and phase in live and 0 < old_size != new_size > 0:
        yield Report("Normal", "Resized", f"from {old_size} to {new_size} pods")
    was = {one["type"]: one for one in before.get("conditions") or ()}
    for one in after.get("conditions") or ():
        kind, old = one["type"], was.get(one["type"], {})
        if one["status"] != "True":
            continue
        new = old.get("status") != "True"
        changed = new or old.get("message") != one["message"]
        if kind == "Foreign" and changed:
            yield Report("Warning", "NameTaken", f"{one['message']} exists but does not belong to this MiniCluster")
        elif kind == "StandingBack" and new:
            yield Report("Warning", "StandingBack", reason)
        elif (kind in ("Unresponsive", "ChannelClosed", "ServicesDown") and changed) or (kind == "Degraded" and new):
            yield Report("Warning", kind, one["message"])
        elif kind == "Saving" and changed and one["reason"] == CANNOT_SAVE:
            yield Report("Warning", "NotSaved", one["message"])
        elif kind == "Invalid" and phase != INVALID and changed:
            yield Report("Warning", "Invalid", f"the change is not applied: {one['message']}")


def _sentence(phase: str, status: Object) -> str:
    reason = status.get("reason") or ""
    if phase == RUNNING:
        return f"{status['brokersUp']} of {status['ready'].partition('/')[2]} brokers are up"
    if phase == FINISHED:
        return reason or f"the job ended with status {status.get('exitCode', 0)}"
    return reason or phase
