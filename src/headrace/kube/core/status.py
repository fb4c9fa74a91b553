"""The status of a MiniCluster: phase, reason, counts, times and conditions, from its observed state.

Pure. Everything is derived from the objects at each call. The previous status provides only the transition times of
conditions, and facts whose objects are gone (the exit code of a deleted pod). Conditions are metav1.Condition; the
first five have the names of the Flux Operator's, for which scripts wait.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...minicluster.fields import MiniCluster
from ...minicluster.plan import hosts_outside
from ...minicluster.pod_plan import KILLED
from ...spec.hostlist import Hostlist
from ...spec.job_state import STATE_BITS
from .. import names
from . import pods
from .observed import Observed

Object = dict[str, Any]

PENDING = "Pending"
STARTING = "Starting"
RUNNING = "Running"
SUSPENDED = "Suspended"
FINISHED = "Finished"
FAILED = "Failed"
INVALID = "Invalid"

# Set on the Job by the operator if the pods did not run in time; its value is what was short.
START_TIMEOUT = "flux-framework.org/headrace-start-timeout"
# Set on a Job that follows others of its MiniCluster: the failures of their pods that count towards spec.backoffLimit.
FORMER_FAILURES = "flux-framework.org/headrace-former-failures"
# Set on a Job while it is suspended by the operator.
SUSPENDED_BY_US = "flux-framework.org/headrace-suspended"
# The reason of JobRunning after the end of an instance that was reported as running.
_RUN_ENDED = "Ended"
_ENDING = "the job has ended, its pods are ending"
# The beginning of the message that a suspension waits, as the queue cannot be saved.
CANNOT_SAVE = "the queue cannot be saved"


class View(Struct, frozen=True, kw_only=True):
    """What `reconcile` knows in addition to the objects: the valid MiniCluster or its problems, and what it
    waits for.
    """

    cluster: MiniCluster | None = None
    problems: tuple[str, ...] = ()
    waits_for: str = ""
    """Why the operator delays something that the spec asks for; "" if it does not."""
    saving: bool = False
    """Whether the instance is being saved; the condition of that name has the start."""
    restart_at: float | None = None
    """When all pods are made anew after a lead was lost; None if they are not to be."""


class End(Struct, frozen=True):
    """The end of the MiniCluster's Job, which may still be in progress."""

    failed: bool
    reason: str
    message: str
    time: str


def job_end(job: Object | None) -> End | None:
    """The end of a Job: its final condition, or the condition that announces it (batch/v1 JobStatus)."""
    if job is None:
        return None
    found = {one["type"]: one for one in (job.get("status") or {}).get("conditions") or () if one["status"] == "True"}
    for kind in ("Failed", "FailureTarget", "Complete", "SuccessCriteriaMet"):
        if kind in found:
            one = found[kind]
            failed = kind.startswith("Fail")
            when = (job.get("status") or {}).get("completionTime") or one.get("lastTransitionTime") or ""
            return End(failed, one.get("reason") or "", one.get("message") or "", when)
    return None


def is_over(job: Object | None) -> bool:
    """Whether the Job and its pods have ended."""
    conditions = ((job or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def text_of(moment: float) -> str:
    """A time in the API's format (RFC 3339, whole seconds)."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """The inverse of `text_of`; fractions of seconds are accepted."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def status_of(observed: Observed, view: View, now: float) -> Object:
    """The status of a MiniCluster."""
    before: Object = observed.cluster.get("status") or {}
    wanted = wanted_brokers(observed, view.cluster)
    current = [pod for name in observed.jobs for pod in pods.current(observed.pods.get(name, []))]
    ready = brokers_up(observed, current, wanted)
    # The exit code of a lead that is ending is unknown; the end is reported together with it.
    end = None if _is_lead_there(observed) else job_end(observed.job)
    lead_end = _lead_end(observed, current)
    if end and lead_end and _is_backoff_exceeded(end, lead_end):
        lead_end = _end_before_the_last(observed, lead_end)
    phase, reason = _phase(observed, view, end, lead_end, current, before)
    spec: Object = observed.cluster.get("spec") or {}
    live = phase in (STARTING, RUNNING)
    status: Object = {
        "phase": phase,
        "reason": reason,
        "ready": f"{ready if live else 0}/{wanted}",
        "brokersUp": ready if live else 0,
        "observedGeneration": observed.cluster["metadata"].get("generation", 0),
        "size": _parallelism(observed),
        "maximumSize": max(_number(spec.get("size")), _number(spec.get("maxSize"))),
        "selector": f"{names.HPA_SELECTOR}={observed.name}",
        "jobid": before.get("jobid", ""),
        "times": _times(observed, phase, current, lead_end, end, wanted, now),
    }
    jobs = _jobs(observed, before, lead_end, end)
    if jobs:
        status["jobs"] = jobs
    code = lead_end.exit_code if lead_end else before.get("exitCode")
    if code is not None and end and not _start_timeout(observed):
        status["exitCode"] = code
    failures = pod_failures(observed)
    if failures:
        status["podFailures"] = failures
    if view.restart_at is not None:
        status["restartAt"] = text_of(view.restart_at)
    status["conditions"] = _conditions(observed, view, status, end, lead_end, now)
    return status


def pod_failures(observed: Observed) -> int:
    """The failures of pods that count towards spec.backoffLimit, also those of former Jobs whose lead was lost.

    A Job that somebody has deleted, or that another spec has replaced, does not count: its successor starts anew.
    """
    if observed.job is None:
        status: Object = observed.cluster.get("status") or {}
        counts = status.get("restartAt") or (status.get("times") or {}).get("finished")
        return _number(status.get("podFailures")) if counts else 0
    failed = _former_failures(observed.job) + _number((observed.job.get("status") or {}).get("failed"))
    # With restartPolicy OnFailure Kubernetes counts the restarts of containers, too.
    return failed + sum(map(pods.restarts, pods.current(observed.own_pods)))


def _former_failures(job: Object) -> int:
    return int((job["metadata"].get("annotations") or {}).get(FORMER_FAILURES, "0"))


def wanted_pods(observed: Observed) -> int:
    """The number of pods that the Jobs should have."""
    return sum(_number((job.get("spec") or {}).get("parallelism")) for job in observed.jobs.values())


def wanted_brokers(observed: Observed, cluster: MiniCluster | None) -> int:
    """The number of brokers that should be up: one in each pod, and those of the hosts outside the MiniCluster that its
    lead waits for (bursting).
    """
    return wanted_pods(observed) + (hosts_outside(cluster) if cluster else 0)


def brokers_up(observed: Observed, current: list[Object], wanted: int) -> int:
    """The number of brokers that are up: from the lead, which knows earlier than the kubelet, if it is connected.

    An operator that has just started has no connection to the lead. Until it has one, the brokers in the previous
    status count as up, unless the kubelet has since reported a pod as not ready.
    """
    if observed.lead and _lead_says(observed):
        return min(observed.lead.brokers_up, wanted)
    ready = sum(1 for pod in current if pods.is_ready(pod))
    before: Object = observed.cluster.get("status") or {}
    if observed.lead is not None or not _still_runs(observed, before):
        return ready
    unknown = wanted - wanted_pods(observed) + sum(1 for pod in current if pods.is_yet_to_be_ready(pod))
    return max(ready, min(_number(before.get("brokersUp")), ready + unknown))


def _lead_pod(observed: Observed) -> Object | None:
    return next((pod for pod in pods.current(observed.own_pods) if pods.index_of(pod) == 0), None)


def _is_lead_there(observed: Observed) -> bool:
    """Whether a lead exists that has not ended."""
    lead = _lead_pod(observed)
    return lead is not None and not pods.is_over(lead)


def _still_runs(observed: Observed, before: Object) -> bool:
    """Whether the lead of the instance that was reported as running still exists and was not killed."""
    lead, name = _lead_pod(observed), observed.name
    told: Object = next((one for one in before.get("conditions") or () if one.get("type") == "JobRunning"), {})
    if before.get("phase") != RUNNING or told.get("status") != "True" or lead is None or pods.is_going(lead):
        return False
    began = pods.started(lead, name)
    return bool(began) and began <= told["lastTransitionTime"] and pods.exit_code(lead, name) not in KILLED


def _start_timeout(observed: Observed) -> str:
    """The shortage because of which the operator has ended a start; "" if it has not."""
    annotations = ((observed.job or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(START_TIMEOUT, ""))


def _lead_says(observed: Observed) -> bool:
    lead = observed.lead
    return lead is not None and lead.state == "running" and (lead.brokers_up > 0 or bool(lead.silent))


def _silence(observed: Observed) -> str:
    """The message that brokers do not answer, with their hosts; "" without any."""
    if observed.lead is None or not observed.lead.silent or not _lead_says(observed):
        return ""
    hosts = observed.lead.silent
    if len(Hostlist.parse(hosts)) == 1:
        return f"the broker of {hosts} does not answer"
    return f"the brokers of {hosts} do not answer"


def shortage(observed: Observed) -> str:
    """Why pods do not run; "" if nothing is known."""
    found: list[str] = []
    for name, job in observed.jobs.items():
        current = pods.current(observed.pods.get(name, []))
        found += pods.troubles(current, observed.pulled)
        # Without a failure the pods that are not there are new ones, of a larger size.
        if _times_before(observed).get("podsRunning") and (job.get("status") or {}).get("failed"):
            found += pods.missing(name, _number((job.get("spec") or {}).get("parallelism")), current)
    # Warnings are about starts, so they are outdated when all pods have run.
    warnings = () if ran_in_full(observed) else observed.warnings
    return "; ".join(dict.fromkeys([*found, *warnings, *([observed.refused] if observed.refused else [])]))


def ran_in_full(observed: Observed) -> bool:
    """Whether all pods of this start are running or have run."""
    times = _times_before(observed)
    current = [pod for name in observed.jobs for pod in pods.current(observed.pods.get(name, []))]
    return bool(times.get("podsRunning")) or sum(map(pods.is_running, current)) >= wanted_pods(observed)


def _phase(
    observed: Observed, view: View, end: End | None, lead_end: pods.LeadEnd | None, current: list[Object],
    before: Object,
) -> tuple[str, str]:  # fmt: skip
    job = observed.job
    if end:
        return _ended(observed, end, lead_end, current, before)
    if job is None:
        if view.problems:
            return INVALID, "; ".join(view.problems)
        if before.get("phase") in (FINISHED, FAILED) and not view.waits_for:
            return str(before["phase"]), str(before.get("reason", ""))
        taken = ", ".join(observed.taken)
        taken = f"{taken} exists and is not this MiniCluster's" if taken else ""
        return PENDING, view.waits_for or taken or observed.refused
    if job_end(job):
        phase = RUNNING if before.get("phase") == RUNNING else STARTING
        return phase, _start_timeout(observed) or _ENDING
    if (job.get("spec") or {}).get("suspend"):
        return SUSPENDED, _why_suspended(observed, job)
    wanted = wanted_brokers(observed, view.cluster)
    ready = brokers_up(observed, current, wanted)
    trouble = shortage(observed)
    count = f"{sum(map(pods.is_running, current))} of {wanted_pods(observed)} pods"
    refused = f"a change is not carried out: {'; '.join(view.problems)}" if view.problems else ""
    lead = _lead_pod(observed)
    lead_ready = _lead_says(observed) or (lead is not None and pods.is_ready(lead))
    quorum = _number((observed.cluster.get("spec") or {}).get("minSize")) or wanted
    if lead_ready and (ready >= min(quorum, wanted) or before.get("phase") == RUNNING):
        short = f"{ready} of {wanted} brokers up" if ready < wanted else ""
        parts = (short, _silence(observed), trouble, _lost_keys(observed), refused)
        return RUNNING, view.waits_for or ", ".join(part for part in parts if part)
    if _still_runs(observed, before):
        # The pods end one by one, and the Job ends after the last container of the lead.
        return RUNNING, _ENDING
    if not any(map(pods.is_scheduled, current)):
        return PENDING, ", ".join(part for part in (count, trouble, refused) if part)
    all_run = all(map(pods.is_running, current)) and len(current) >= wanted_pods(observed)
    progress = f"{ready} of {wanted} brokers up" if all_run else count
    return STARTING, ", ".join(part for part in (progress, _silence(observed), trouble, refused) if part)


def _why_suspended(observed: Observed, job: Object) -> str:
    if (observed.cluster.get("spec") or {}).get("suspend"):
        return ""
    ours = SUSPENDED_BY_US in (job["metadata"].get("annotations") or {})
    return "its pods start again" if ours else "its Job is suspended by somebody else"


def _lost_keys(observed: Observed) -> str:
    if observed.secret is not False:
        return ""
    text = "pods that are made again cannot start without it: delete Job"
    return f"Secret {names.secret_of(observed.name)} is gone, and {text} {observed.name}, and all start anew"


def _ended(
    observed: Observed, end: End, lead_end: pods.LeadEnd | None, current: list[Object], before: Object
) -> tuple[str, str]:
    if _start_timeout(observed):
        return FAILED, _start_timeout(observed)
    kept = before.get("phase") == (FAILED if end.failed else FINISHED)
    if lead_end is None and kept and before.get("reason"):
        # The pods and their termination messages are gone, so the previous reason is kept.
        return str(before["phase"]), str(before["reason"])
    code = lead_end.exit_code if lead_end else before.get("exitCode")
    said = lead_end.reason if lead_end else ""
    if not end.failed:
        if code:
            ignored = "; ignoreFailure" if (observed.cluster.get("spec") or {}).get("ignoreFailure") else ""
            return FINISHED, f"{said or f'the job ended with exit code {code}'}{ignored}"
        return FINISHED, said
    if end.reason == "DeadlineExceeded":
        return FAILED, "it ran longer than spec.deadlineSeconds"
    if _is_backoff_exceeded(end, lead_end):
        # The Job counts its last failure only after it has announced its own.
        text = "pods have failed more often than spec.backoffLimit allows"
        return FAILED, f"{text}: {said}" if said else text
    if code:
        text = said or f"the job ended with exit code {code}"
        memory = "" if "OOMKilled" in text else pods.out_of_memory(current)
        return FAILED, f"{text}; {memory}" if memory else text
    return FAILED, ", ".join(part for part in (said or end.message or end.reason, shortage(observed)) if part)


def _is_backoff_exceeded(end: End, lead_end: pods.LeadEnd | None) -> bool:
    """Whether the MiniCluster failed because pods were killed too often, and not because of its job."""
    return end.reason == "BackoffLimitExceeded" and lead_end is not None and lead_end.killed


def _end_before_the_last(observed: Observed, lead_end: pods.LeadEnd) -> pods.LeadEnd:
    """The end of a lead that failed too often in its pod (restartPolicy OnFailure): that of the run before the one that
    Kubernetes had just started, and killed.
    """
    lead = _lead_pod(observed)
    former = pods.former_end(lead, observed.name) if lead is not None else None
    return replace(former, finished=lead_end.finished) if former and former.exit_code else lead_end


def _lead_end(observed: Observed, current: list[Object]) -> pods.LeadEnd | None:
    """The end of the lead; None while one runs, including the replacement of a lead that was killed. A lead that was
    ended because the pod of another index had failed has the end of that pod.
    """
    lead = _lead_pod(observed)
    found = pods.lead_end(lead, observed.name) if lead is not None else None
    if lead is None or found is None or not found.killed:
        return found
    failed = [pod for pod in current if pods.exit_code(pod, observed.name) not in (None, 0, *KILLED)]
    for pod, other in [(pod, pods.lead_end(pod, observed.name)) for pod in failed]:
        if other is not None:
            why = other.reason or f"it ended with exit code {other.exit_code}"
            return replace(found, exit_code=other.exit_code, reason=f"pod {pods.host_of(pod)}: {why}")
    return found


def _jobs(observed: Observed, before: Object, lead_end: pods.LeadEnd | None, end: End | None) -> Object:
    """Jobs by state: from the lead, or its termination message; after the end of the instance no job is active."""
    known: Object = {}
    if lead_end and lead_end.jobs:
        known = lead_end.jobs
    elif observed.lead is not None and observed.lead.jobs:
        known = observed.lead.jobs
    elif _times_before(observed):
        known = before.get("jobs") or {}
    if not known:
        return {}
    return {state: 0 if end and state != "inactive" else _number(known.get(state)) for state in STATE_BITS}


def _times(
    observed: Observed, phase: str, current: list[Object], lead_end: pods.LeadEnd | None, end: End | None, wanted: int,
    now: float,
) -> Object:  # fmt: skip
    """The time of each phase in this start; a resumed MiniCluster starts anew, and the instance of a next lead, too."""
    old, job = _times_before(observed), observed.job
    if phase in (PENDING, STARTING):
        old = {key: old[key] for key in old if key not in ("brokersUp", "jobStarted")}
    times: Object = {"requested": observed.cluster["metadata"].get("creationTimestamp") or text_of(now)}
    if job is None:
        return {**times, **{key: old[key] for key in old if key != "requested"}}
    times["created"] = job["metadata"].get("creationTimestamp") or text_of(now)
    if (job.get("spec") or {}).get("suspend"):
        return times
    started = [pods.started(pod, observed.name) or (text_of(now) if pods.is_running(pod) else "") for pod in current]
    if old.get("podsRunning") or (current and len(current) >= wanted_pods(observed) and all(started)):
        times["podsRunning"] = old.get("podsRunning") or max(started)
    up = [pods.ready_since(pod) for pod in current if pods.is_ready(pod)]
    if old.get("brokersUp") or brokers_up(observed, current, wanted) >= wanted > 0:
        times["brokersUp"] = old.get("brokersUp") or (max(up) if len(up) >= wanted else text_of(now))
    # The lead's own time is exact; the operator may see a short run only when it is over.
    told = _moment((lead_end.times if lead_end else {}).get("run"))
    began = told or old.get("jobStarted")
    if not began and observed.lead and observed.lead.state == "running" and _active(observed):
        began = text_of(now)
    if told:
        times.setdefault("brokersUp", told)
    if began:
        times["jobStarted"] = began
    if end:
        times["finished"] = old.get("finished") or (lead_end.finished if lead_end else "") or end.time or text_of(now)
    return times


def _times_before(observed: Observed) -> Object:
    """The times in the previous status, unless they are those of a former Job."""
    times: Object = (observed.cluster.get("status") or {}).get("times") or {}
    made = observed.job["metadata"].get("creationTimestamp") if observed.job else times.get("created")
    return dict(times) if times.get("created", made) == made else {}


def _moment(seconds: Any) -> str:
    """A time in a termination message, given in seconds since the epoch; "" for an invalid one."""
    return text_of(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e11 else ""


def _active(observed: Observed) -> bool:
    jobs = observed.lead.jobs if observed.lead else {}
    return any(jobs.get(state, 0) for state in ("run", "cleanup", "inactive"))


def _conditions(
    observed: Observed, view: View, status: Object, end: End | None, lead_end: pods.LeadEnd | None, now: float
) -> list[Object]:
    phase, reason = status["phase"], status["reason"]
    before: Object = observed.cluster.get("status") or {}
    old = {one.get("type"): one for one in before.get("conditions") or ()}
    suspended = phase == SUSPENDED
    waiting = phase in (PENDING, STARTING) and observed.job is not None
    told = _run_was_told(before, old)
    # An instance may start and end between two reconciles. The status with its end then has JobRunning as true, and the
    # next one as false, so that a client that waits for the condition sees it as with a longer job.
    running = phase == RUNNING or bool(end and lead_end and _ran(lead_end) and not told)
    up = "BrokersUp" if phase == RUNNING else "HasRun" if running else phase
    ran = _span(status["times"]) if end else ""
    rows = [
        ("JobRequested", observed.job is not None, "JobCreated" if observed.job else "NoJob", ""),
        ("JobWaitingForResources", waiting, "PodsNotRunning" if waiting else "PodsRunning", reason if waiting else ""),
        ("JobMiniClusterReady", running, up, reason if phase == RUNNING else ran),
        ("JobRunning", running, "HasRun" if running and end else _RUN_ENDED if told and end else phase, ran),
        ("JobFinished", end is not None, phase if end else "Unfinished", reason if end else ""),
    ]  # fmt: skip
    silence = _silence(observed) if not end else ""
    failure = _failure_reason(observed, end, lead_end, status, old) if phase == FAILED else "NotFailed"
    optional = [
        ("Failed", phase == FAILED, failure, reason if phase == FAILED else ""),
        ("Suspended", suspended, "Suspended" if suspended else "Resumed", ""),
        ("Invalid", bool(view.problems), "RulesBroken" if view.problems else "Valid", "; ".join(view.problems)),
        ("Unresponsive", bool(silence), "BrokersSilent" if silence else "BrokersAnswer", silence),
        ("Foreign", bool(observed.taken), "NameTaken" if observed.taken else "NoneTaken", ", ".join(observed.taken)),
        (
            "Saving",
            view.saving,
            "QueueSaved" if not view.saving else "SavingQueue",
            view.waits_for if view.saving else "",
        ),
        ("StandingBack", bool(view.waits_for) and observed.other_operator_until > now, "OtherOperator", view.waits_for),
    ]
    # A condition that has never been true is omitted.
    rows += [row for row in optional if row[1] or row[0] in old]
    return [_condition(row, old.get(row[0]), status["observedGeneration"], now) for row in rows]


def _run_was_told(before: Object, old: Object) -> bool:
    """Whether a previous status has reported as running the instance that has now ended."""
    told = old.get("JobRunning", {})
    return before.get("phase") == RUNNING or told.get("status") == "True" or told.get("reason") == _RUN_ENDED


def _ran(lead_end: pods.LeadEnd) -> bool:
    return bool(_moment(lead_end.times.get("run")))


def _span(times: Object) -> str:
    began, finished = times.get("jobStarted"), times.get("finished")
    return f"the job ran from {began} to {finished}" if began and finished else ""


def _failure_reason(
    observed: Observed, end: End | None, lead_end: pods.LeadEnd | None, status: Object, old: Object
) -> str:
    """The reason of the condition Failed (one word, metav1.Condition): what failed, not how Kubernetes reported it."""
    if _start_timeout(observed):
        return "StartTimeout"
    if end and (end.reason == "DeadlineExceeded" or _is_backoff_exceeded(end, lead_end)):
        return end.reason
    if lead_end is None and old.get("Failed", {}).get("status") == "True":
        return str(old["Failed"].get("reason") or "JobFailed")
    if "exitCode" in status:
        return {"cancel": "JobCancelled", "timeout": "JobTimedOut"}.get(lead_end.cause if lead_end else "", "JobFailed")
    return end.reason if end and end.reason.isidentifier() else "JobFailed"


def _condition(row: tuple[str, bool, str, str], old: Object | None, generation: int, now: float) -> Object:
    kind, holds, reason, message = row
    text = "True" if holds else "False"
    changed = text_of(now) if old is None or old.get("status") != text else old.get("lastTransitionTime")
    return {
        "type": kind,
        "status": text,
        "reason": reason or kind,
        "message": message[:32768],
        "lastTransitionTime": changed,
        "observedGeneration": generation,
    }


def _parallelism(observed: Observed) -> int:
    job = observed.job
    return _number((job.get("spec") or {}).get("parallelism")) if job else 0


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
