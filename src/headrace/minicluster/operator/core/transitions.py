"""The Kubernetes Events of a MiniCluster's life: one for each change of phase, and one for each new problem. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.k8s.runtime.events import Report

from .conditions import CANNOT_SAVE
from .phases import FAILED, FINISHED, INVALID, PENDING, RUNNING, STARTING, SUSPENDED

Object = dict[str, Any]

# Phases in which a new reason is an Event of its own, in addition to the phase's.
_TOLD = {
    FINISHED: ("Normal", "Finished"),
    FAILED: ("Warning", "Failed"),
    INVALID: ("Warning", "Invalid"),
    SUSPENDED: ("Normal", "Suspended"),
    RUNNING: ("Normal", "Running"),
}


def events_of(before: Object, after: Object) -> Iterator[Report]:
    """The Events for the change from one status to another."""
    phase, reason = after["phase"], after.get("reason") or ""
    if phase != before.get("phase") and phase in _TOLD:
        kind, name = _TOLD[phase]
        yield Report(kind, name, _sentence(phase, after))
    elif phase == STARTING and before.get("phase") == SUSPENDED:
        yield Report("Normal", "Resumed", "its pods start again")
    elif phase in (PENDING, STARTING) and before.get("phase") == RUNNING:
        yield Report("Warning", "InstanceLost", f"the lead is gone, and another one starts: {reason or phase}")
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
            yield Report("Warning", "NameTaken", f"{one['message']} exists and is not this MiniCluster's")
        elif kind == "StandingBack" and new:
            yield Report("Warning", "StandingBack", reason)
        elif (kind in ("Unresponsive", "ChannelClosed", "ServicesDown") and changed) or (kind == "Degraded" and new):
            yield Report("Warning", kind, one["message"])
        elif kind == "Saving" and changed and one["reason"] == CANNOT_SAVE:
            yield Report("Warning", "NotSaved", one["message"])
        elif kind == "Invalid" and phase != INVALID and changed:
            yield Report("Warning", "Invalid", f"the change is not carried out: {one['message']}")


def _sentence(phase: str, status: Object) -> str:
    reason = status.get("reason") or ""
    if phase == RUNNING:
        return f"{status['brokersUp']} of {status['ready'].partition('/')[2]} brokers are up"
    if phase == FINISHED:
        return reason or f"the job ended with status {status.get('exitCode', 0)}"
    return reason or phase
