"""The progress of a MiniCluster: which pods run, which brokers are up, and why others are not. Pure."""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.conditions import condition

from ...api.channel_messages import MOST_NAMED
from ...api.fields import MiniCluster
from ...api.plan import hosts_outside
from ...api.pod_plan import KILLED
from ..names import RUNNING
from ..objects import FORMER_FAILURES, annotations_of
from . import pods
from .observed import Observed

Object = dict[str, Any]


def wanted_pods(observed: Observed) -> int:
    """The number of pods that the Jobs should have."""
    return sum(number((job.get("spec") or {}).get("parallelism")) for job in observed.jobs.values())


def wanted_brokers(observed: Observed, cluster: MiniCluster | None) -> int:
    """The number of brokers that should be up: one in each pod, and one on each outside host (bursting)."""
    return wanted_pods(observed) + (hosts_outside(cluster) if cluster else 0)


def brokers_up(observed: Observed, wanted: int) -> int:
    """The number of brokers that are up. A connected lead knows this earlier than the kubelet.

    An operator that has just started has no connection to the lead. Until it has one, the brokers in the previous
    status count as up, unless the kubelet has since reported a pod as not ready.
    """
    if observed.lead and lead_says(observed):
        return min(observed.lead.brokers_up, wanted)
    current = observed.current_pods
    ready = sum(1 for pod in current if pods.is_ready(pod))
    if observed.lead is not None or not still_runs(observed):
        return ready
    unreported = wanted - wanted_pods(observed) + sum(1 for pod in current if pods.is_yet_to_be_ready(pod))
    return max(ready, min(number(observed.status.get("brokersUp")), ready + unreported))


def is_lead_there(observed: Observed) -> bool:
    """Whether a lead exists that has not ended."""
    lead = observed.lead_pod
    return lead is not None and not pods.is_over(lead)


def still_runs(observed: Observed) -> bool:
    """Whether the lead of the instance that was reported as running still exists and was not killed."""
    before, lead, name = observed.status, observed.lead_pod, observed.name
    reported = condition(before, "JobRunning")
    if before.get("phase") != RUNNING or reported.get("status") != "True" or lead is None or pods.is_terminating(lead):
        return False
    began = pods.started(lead, name)
    return bool(began) and began <= reported["lastTransitionTime"] and pods.exit_code(lead, name) not in KILLED


def lead_says(observed: Observed) -> bool:
    """Whether the lead reports which brokers are up. It does not while it starts."""
    lead = observed.lead
    return lead is not None and lead.state == "running" and (lead.brokers_up > 0 or bool(lead.silent))


def silence(observed: Observed) -> str:
    """The message that brokers do not answer, with their hosts; "" if all answer."""
    if observed.lead is None or not observed.lead.silent or not lead_says(observed):
        return ""
    hosts, others = observed.lead.silent, observed.lead.brokers_silent - MOST_NAMED
    if observed.lead.brokers_silent == 1:
        return f"the broker of {hosts} does not answer"
    return f"the brokers of {hosts}{f' and {others} others' if others > 0 else ''} do not answer"


def shortage(observed: Observed) -> str:
    """Why pods do not run; "" if nothing is known."""
    found: list[str] = []
    for name, job in observed.jobs.items():
        current = pods.current(observed.pods.get(name, []))
        found += pods.troubles(current, observed.pulled)
        # If no pod has failed, the missing pods are new pods of a larger size.
        if times_before(observed).get("podsRunning") and (job.get("status") or {}).get("failed"):
            found += pods.missing(name, number((job.get("spec") or {}).get("parallelism")), current)
    # Warnings concern the start of pods, so they are outdated once all pods have run.
    warnings = () if ran_in_full(observed) else observed.warnings
    return "; ".join(dict.fromkeys([*found, *warnings, *([observed.refused] if observed.refused else [])]))


def services_trouble(observed: Observed) -> str:
    """Why the pod of `spec.services` does not run; "" if it runs, is starting, or does not exist."""
    own = [pod for pod in observed.pods.get("", ()) if not pods.is_terminating(pod)]
    found = pods.troubles(own)
    # Until the Jobs' pods have run, `shortage` reports the warnings.
    if any(map(pods.waits_for_volumes, own)) and ran_in_full(observed):
        found += observed.warnings
    return "; ".join(f"services: {text}" for text in dict.fromkeys(found))


def ran_in_full(observed: Observed) -> bool:
    """Whether all pods of this start are running or have run."""
    times = times_before(observed)
    return bool(times.get("podsRunning")) or sum(map(pods.is_running, observed.current_pods)) >= wanted_pods(observed)


def pod_failures(observed: Observed) -> int:
    """The pod failures that count towards spec.backoffLimit.

    Failures of a former Job count if the Job was replaced because its lead was lost. They do not count if a user
    deleted the Job, or if it was replaced because the spec changed.
    """
    if observed.job is None:
        status = observed.status
        counts = status.get("restartAt") or (status.get("times") or {}).get("finished")
        return number(status.get("podFailures")) if counts else 0
    former = int(annotations_of(observed.job).get(FORMER_FAILURES, "0"))
    failed = former + number((observed.job.get("status") or {}).get("failed"))
    # With restartPolicy OnFailure, Kubernetes also counts container restarts.
    return failed + sum(map(pods.restarts, pods.current(observed.own_pods)))


def times_before(observed: Observed) -> Object:
    """The times in the previous status; {} if they belong to a former Job."""
    times: Object = observed.status.get("times") or {}
    made = observed.job["metadata"].get("creationTimestamp") if observed.job else times.get("created")
    return dict(times) if times.get("created", made) == made else {}


def number(value: Any) -> int:
    """A number from an API object; 0 if it is missing."""
    return value if isinstance(value, int) else 0
