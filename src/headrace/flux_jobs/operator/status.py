"""The progress and the end of a Job that is a cluster, as an annotation and Events on the Job. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.k8s.objects.conditions import Ended, job_end
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime.events import Report
from headrace.minicluster.operator.core import pods
from headrace.minicluster.operator.core.job_end import failed_pod
from headrace.minicluster.operator.core.observed import Lead

Object = dict[str, Any]

# Seconds from the creation of a pod after which an Event reports why it is not running.
WAITING_AFTER = 10.0


class ClusterEnd(Struct, frozen=True):
    """The end of a cluster. `exit` is the exit code of its command, None if unknown (as after a kill)."""

    failed: bool
    exit: int | None
    reason: str
    times: dict[str, str]

    def annotation(self) -> str:
        """The text of the annotation: exit, reason, and times (RFC 3339)."""
        found: Object = {"reason": self.reason, "times": self.times}
        return json.dumps(found if self.exit is None else {"exit": self.exit, **found})

    def report(self) -> Report:
        if not self.failed:
            return Report("Normal", "Finished", self.reason or f"the command ended with exit code {self.exit or 0}")
        return Report("Warning", "Failed", self.reason)


def end_of(job: Object, job_pods: list[Object], container: str) -> ClusterEnd | None:
    """The end of a Job with the pods `job_pods`; None until it is known.

    `container` is the name of the broker's container.
    """
    end, current = job_end(job), pods.current(job_pods)
    lead = next((pod for pod in current if pods.index_of(pod) == 0), None)
    if end is None or (lead is not None and not pods.is_over(lead)):
        return None
    found = pods.lead_end(lead, container) if lead is not None else None
    if found is not None and found.killed:
        # The lead was killed because another pod had failed.
        code, why = failed_pod(current, container)
        found = replace(found, exit_code=code, reason=why, killed=False) if why else found
    times = {"created": job["metadata"].get("creationTimestamp", "")}
    if found is not None and found.job_started:
        times["started"] = found.job_started
    times["finished"] = (found.finished if found else "") or end.time
    code_ = None if found is None or found.killed else found.exit_code
    return ClusterEnd(end.failed, code_, _reason(end, found), {name: text for name, text in times.items() if text})


def _reason(end: Ended, found: pods.LeadEnd | None) -> str:
    said = found.reason if found else ""
    if end.reason == "DeadlineExceeded":
        return "it ran longer than spec.activeDeadlineSeconds"
    if end.failed and end.reason == "BackoffLimitExceeded" and (found is None or found.killed):
        text = "pods have failed more often than spec.backoffLimit allows"
        return f"{text}: {said}" if said else text
    if said or not end.failed:
        return said
    if found is not None and found.exit_code:
        return f"the command ended with exit code {found.exit_code}"
    return end.message or end.reason


def progress(size: int, job_pods: list[Object], lead: Lead | None, now: float) -> Iterator[Report]:
    """The Events about a cluster of `size` pods that has not ended, to be written once for each start."""
    current = pods.current(job_pods)
    if lead is not None and lead.state == "running" and lead.brokers_up >= size:
        yield Report("Normal", "BrokersUp", f"{size} of {size} brokers are up")
        return
    late = [pod for pod in current if now >= late_at(pod)]
    text = "; ".join(pods.troubles(late))
    if text:
        running = sum(map(pods.is_running, current))
        yield Report("Warning", "PodsNotRunning", f"{running} of {size} pods run: {text}")


def late_at(pod: Object) -> float:
    """The latest time by which a pod should be running (seconds since the epoch)."""
    return seconds_of(pod["metadata"]["creationTimestamp"]) + WAITING_AFTER
