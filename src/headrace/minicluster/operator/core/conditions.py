"""The conditions of a MiniCluster's status (metav1.Condition). Pure.

The first five have the names that the Flux Operator uses, because scripts wait for them.
"""

from __future__ import annotations

from msgspec import Struct

from headrace.k8s.objects.conditions import Ended
from headrace.k8s.objects.timestamps import text_of

from ...api.fields import MiniCluster
from ..names import FAILED, PENDING, RUNNING, STARTING, SUSPENDED
from ..objects import GROUP_FAILED, START_TIMEOUT, annotations_of
from . import pods
from .job_end import is_backoff_exceeded
from .observed import Object, Observed
from .progress import services_trouble, silence

# JobRunning gets this reason when an instance that was reported as running has ended.
_RUN_ENDED = "Ended"
# The reason of Saving while the queue cannot be saved.
CANNOT_SAVE = "CannotSave"


class View(Struct, frozen=True, kw_only=True):
    """What `reconcile` adds to the status: the MiniCluster or its problems, and delayed changes."""

    cluster: MiniCluster | None = None
    problems: tuple[str, ...] = ()
    waits_for: str = ""
    """Why the operator delays a change that the spec requests; "" if it does not."""
    saving: bool = False
    """Whether the instance is being saved; the condition Saving has the time of the first attempt."""
    save_failed: bool = False
    """Whether the last attempt to save the instance failed and will be retried."""
    restart_at: float | None = None
    """When all pods are recreated after a lead was lost; None if no restart is due."""


def conditions_of(
    observed: Observed, view: View, status: Object, degraded: bool, end: Ended | None, lead_end: pods.LeadEnd | None,
    now: float,
) -> list[Object]:  # fmt: skip
    """The conditions for a `status` that is otherwise complete.

    `degraded`: brokers are missing for a known reason.
    """
    phase, reason = status["phase"], status["reason"]
    before = observed.status
    old = {one.get("type"): one for one in before.get("conditions") or ()}
    suspended = phase == SUSPENDED
    waiting = phase in (PENDING, STARTING) and observed.job is not None
    reported = _run_was_reported(before, old)
    # An instance may start and end between two reconciles. JobRunning is then true in the status that reports the end,
    # and false in the next status, so that a client that waits for the condition sees it.
    running = phase == RUNNING or bool(end and lead_end and lead_end.job_started and not reported)
    up = "BrokersUp" if phase == RUNNING else "HasRun" if running else phase
    ran = _span(status["times"]) if end else ""
    needs = "PodsNotRunning" if waiting else "NoPods" if suspended or observed.job is None else "PodsRunning"
    # A row is a condition: its type, whether it is true, its reason and its message.
    rows = [
        ("JobRequested", observed.job is not None, "JobCreated" if observed.job else "NoJob", ""),
        ("JobWaitingForResources", waiting, needs, reason if waiting else ""),
        ("JobMiniClusterReady", running, up, reason if phase == RUNNING else ran),
        ("JobRunning", running, "HasRun" if running and end else _RUN_ENDED if reported and end else phase, ran),
        ("JobFinished", end is not None, phase if end else "Unfinished", reason if end else ""),
    ]  # fmt: skip
    elsewhere, unanswered = observed.metrics_elsewhere, observed.metrics_unanswered
    silent, closed = ("", "") if end else (silence(observed), observed.channel_closed)
    services = services_trouble(observed)
    failure = _failure_reason(observed, end, lead_end, status, old) if phase == FAILED else "NotFailed"
    optional = [
        ("Failed", phase == FAILED, failure, reason if phase == FAILED else ""),
        ("Suspended", suspended, "Suspended" if suspended else "Resumed", ""),
        ("Invalid", bool(view.problems), "RulesBroken" if view.problems else "Valid", "; ".join(view.problems)),
        ("Unresponsive", bool(silent), "BrokersSilent" if silent else "BrokersAnswer", silent),
        ("ChannelClosed", bool(closed), "RulesBroken" if closed else "ChannelOpen", closed),
        ("Degraded", degraded, "BrokersMissing" if degraded else "BrokersUp", reason if degraded else ""),
        ("ServicesDown", bool(services), "PodNotRunning" if services else "PodRunning", services),
        ("Foreign", bool(observed.taken), "NameTaken" if observed.taken else "NoneTaken", ", ".join(observed.taken)),
        ("Saving", view.saving, _saving(view), view.waits_for if view.saving else ""),
        ("MetricsElsewhere", bool(elsewhere), "OtherAdapter" if elsewhere else "OurAdapter", elsewhere),
        ("MetricsUnanswered", bool(unanswered), _unanswered(unanswered), unanswered),
        ("StandingBack", bool(view.waits_for) and observed.other_operator_until > now, "OtherOperator", view.waits_for),
    ]
    # A condition that has never been true is omitted.
    rows += [row for row in optional if row[1] or row[0] in old]
    return [_condition(row, old.get(row[0]), status["observedGeneration"], now) for row in rows]


def _run_was_reported(before: Object, old: Object) -> bool:
    """Whether a previous status reported that the instance was running."""
    reported = old.get("JobRunning", {})
    return before.get("phase") == RUNNING or reported.get("status") == "True" or reported.get("reason") == _RUN_ENDED


def _saving(view: View) -> str:
    return CANNOT_SAVE if view.save_failed else "SavingQueue" if view.saving else "QueueSaved"


def _unanswered(why: str) -> str:
    return "AggregationLayerUnknown" if why else "AggregationLayerKnown"


def _span(times: Object) -> str:
    began, finished = times.get("jobStarted"), times.get("finished")
    return f"the job ran from {began} to {finished}" if began and finished else ""


def _failure_reason(
    observed: Observed, end: Ended | None, lead_end: pods.LeadEnd | None, status: Object, old: Object
) -> str:
    """The reason of the condition Failed (metav1.Condition): the cause, not Kubernetes' own reason."""
    if START_TIMEOUT in annotations_of(observed.job):
        return "StartTimeout"
    if GROUP_FAILED in annotations_of(observed.job):
        return "GroupFailed"
    if end and (end.reason == "DeadlineExceeded" or is_backoff_exceeded(end, lead_end)):
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
