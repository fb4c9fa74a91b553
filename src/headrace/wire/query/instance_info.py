"""The fields `instance.*` of `flux jobs`: the jobs and resources of the instance that a job runs."""

from __future__ import annotations

import os

from headrace.wire.client.handle import Handle
from headrace.wire.query.uri import reachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from headrace.wire.query.job_info import JobInfo

PREFIX = "instance."
# The sets of resources, with the headings of their fields. The fields of `all` have the name of what they count.
_SETS = {"all": "", "up": "UP", "down": "DOWN", "allocated": "USED", "free": "FREE"}
HEADINGS = {
    "instance.stats": "STATS",
    "instance.stats.total": "NJOBS",
    "instance.utilization": "CORE%",
    "instance.gpu_utilization": "GPU%",
    "instance.progress": "PROG",
    **{f"instance.stats.{name}": name.upper() for name in ("pending", "running", "successful", "failed")},
    **{f"instance.stats.{name}": name.upper() for name in ("canceled", "timeout", "active", "inactive")},
    **{
        f"instance.resources.{part}.n{kind}": heading or kind.upper()
        for part, heading in _SETS.items()
        for kind in ("nodes", "cores", "gpus")
    },
}


def ask(job: JobInfo) -> Dict[str, Any]:
    """Return the fields by name; empty unless the job runs a reachable instance of this user."""
    uri = job.get("uri")
    if not uri or job.get("state") != "RUN" or job.get("userid") != os.getuid():
        return {}
    from headrace.wire.query.resource_sets import SchedulerResources

    try:
        handle = Handle(reachable(uri))
        calls = handle.rpc("job-list.job-stats"), handle.rpc("resource.sched-status", nodeid=0)
        stats: Any = calls[0].get()
        found = {**_of_jobs(stats), **_of_resources(SchedulerResources(calls[1]))}
        handle.close()
    except (OSError, ValueError):
        # The instance is shutting down or has not started yet.
        return {}
    return {f"{PREFIX}{name}": value for name, value in found.items()}


def _of_jobs(stats: Dict[str, Any]) -> Dict[str, Any]:
    states = stats["job_states"]
    pending = states["depend"] + states["priority"] + states["sched"]
    running = states["run"] + states["cleanup"]
    bad = stats["failed"] + stats["canceled"] + stats["timeout"]
    total = states["total"]
    counts = {name: stats[name] for name in ("successful", "failed", "canceled", "timeout")}
    counts.update(pending=pending, running=running, active=pending + running, inactive=states["inactive"], total=total)
    return {
        "stats": f"PD:{pending} R:{running} CD:{stats['successful']} F:{bad}",
        "progress": states["inactive"] / total if total else 0.0,
        **{f"stats.{name}": count for name, count in counts.items()},
    }


def _of_resources(resources: Any) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for part in _SETS:
        for kind in ("nnodes", "ncores", "ngpus"):
            found[f"resources.{part}.{kind}"] = getattr(resources.state(part), kind)
    for name, kind in (("utilization", "ncores"), ("gpu_utilization", "ngpus")):
        total = found[f"resources.all.{kind}"]
        if total:
            found[name] = found[f"resources.allocated.{kind}"] / total
    return found
