"""Conditions of objects: whether an object has ended and how, and whether it is suspended. Pure.

Sources: API references of Kubernetes 1.34 (JobStatus, PodStatus), JobSet 0.12, Kubeflow Trainer 2.3 and mpi-operator
(kubeflow.org/v2beta1); docs/user/minicluster.md for the status of a MiniCluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .kinds import JOBS, JOBSETS, MINICLUSTERS, MPIJOBS, PODS, TRAINJOBS, Kind

Object = dict[str, Any]

# The conditions that end an object, by kind; True stands for success. The first condition that holds decides.
_CONDITIONS: dict[str, dict[str, bool]] = {
    JOBS.kind: {"Failed": False, "Complete": True},
    JOBSETS.kind: {"Failed": False, "Completed": True},
    TRAINJOBS.kind: {"Failed": False, "Complete": True},
    MPIJOBS.kind: {"Failed": False, "Succeeded": True},
}
# The conditions that end a Job, including those that its controller sets while pods are still terminating.
_INTERIM = {"Failed": False, "FailureTarget": False, "Complete": True, "SuccessCriteriaMet": True}
# The phases in which a pod has ended; True stands for success. Public for loops over many pods.
POD_ENDS = {"Failed": False, "Succeeded": True}
_PHASES: dict[str, dict[str, bool]] = {
    PODS.kind: POD_ENDS,
    MINICLUSTERS.kind: {"Failed": False, "Finished": True},
}
# The path of the field that keeps a Job, JobSet, TrainJob or MiniCluster from making pods.
SUSPEND = ("spec", "suspend")


class Ended(NamedTuple):
    """How an object has ended.

    `reason` and `message` are those of its condition or, for a kind with phases, of its status. `time` is RFC 3339.
    Each is "" if the object lacks it.
    """

    succeeded: bool
    reason: str
    message: str
    time: str

    @property
    def failed(self) -> bool:
        return not self.succeeded

    @property
    def text(self) -> str:
        """`REASON: MESSAGE`, or the one of the two that is present."""
        return ": ".join(part for part in (self.reason, self.message) if part)


def condition(status: Object | None, name: str) -> Object:
    """The condition with this type in the status of an object; {} if there is none."""
    for one in (status or {}).get("conditions") or ():
        if one.get("type") == name:
            found: Object = one
            return found
    return {}


def holds(status: Object | None, name: str) -> bool:
    """True if the condition with this type is True in the status of an object."""
    return bool(condition(status, name).get("status") == "True")


def ended(kind: Kind, item: Object | None) -> Ended | None:
    """How an object has ended, with all of its pods; None if it has not ended or does not exist."""
    phases = _PHASES.get(kind.kind)
    if phases is None:
        return ended_by(item, _CONDITIONS[kind.kind])
    status = (item or {}).get("status") or {}
    succeeded = phases.get(status.get("phase", ""))
    return None if succeeded is None else Ended(succeeded, *_texts(status), "")


def has_ended(kind: Kind, item: Object | None) -> bool:
    """True if an object of a kind has ended, with all of its pods."""
    phases = _PHASES.get(kind.kind)
    if phases is None:
        return ended(kind, item) is not None
    return ((item or {}).get("status") or {}).get("phase") in phases


def job_end(job: Object | None) -> Ended | None:
    """The end of a Job as soon as its controller has decided on it, which may be before its pods have terminated."""
    return ended_by(job, _INTERIM)


def ended_by(item: Object | None, types: Mapping[str, bool]) -> Ended | None:
    """How an object has ended, by the first of the conditions `types` that holds.

    The value True of a type stands for success.
    """
    status = (item or {}).get("status") or {}
    found = {one.get("type"): one for one in status.get("conditions") or () if one.get("status") == "True"}
    for name, succeeded in types.items():
        if name in found:
            when = status.get("completionTime") or found[name].get("lastTransitionTime") or ""
            return Ended(succeeded, *_texts(found[name]), str(when))
    return None


def is_suspended(item: Object, path: Sequence[str] = SUSPEND) -> bool:
    """True if the field at `path`, which is () for a kind without one, keeps an object from making pods."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value is True


def _texts(part: Object) -> tuple[str, str]:
    return str(part.get("reason") or ""), str(part.get("message") or "")
