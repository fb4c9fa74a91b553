"""Jobs of other schedulers, which were matched by gRPC: what they have of the nodes. Pure.

The FluxJob of such a job belongs to no object. Its `spec.resources` says what the job has of each node, so that one
write makes it known, and a core that begins anew holds the same. It has that until the FluxJob is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...kube.runtime.timestamps import seconds_of, text_of
from ...spec.hostlist import Hostlist
from .. import requests
from ..names import EXTERNAL, FLUXJOBS, JOBID
from .cluster_queue import ClusterQueue

Object = dict[str, Any]
# The annotation of the FluxJob of a group of pods: how many they are.
NUMBER = "fluxqueue/group-size"
Amounts = Mapping[str, requests.Amounts]
"""What a job has of nodes, by their names."""


def is_external(fluxjob: Object) -> bool:
    return bool((fluxjob.get("spec") or {}).get("type") == EXTERNAL and jobid_of(fluxjob))


def jobid_of(fluxjob: Object) -> int:
    """The id of a FluxJob's job; 0 where its label has none."""
    text = str((fluxjob["metadata"].get("labels") or {}).get(JOBID, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


def made_of(jobid: int, namespace: str, queue: str, amounts: Amounts, jobspec: Object, duration: int) -> Object:
    """The FluxJob of a job with these amounts, for `duration` seconds (0: not known)."""
    name = f"match-{jobid}"
    return {
        "apiVersion": FLUXJOBS.api_version,
        "kind": FLUXJOBS.kind,
        "metadata": {"name": f"{name}-external", "namespace": namespace, "labels": {JOBID: str(jobid)}},
        "spec": {
            "jobspec": json.dumps(jobspec, separators=(",", ":")),
            "type": EXTERNAL,
            "name": name,
            "duration": duration,
            "reservation": False,
            "nodes": len(amounts),
            "queue": queue,
            "resources": {"nodes": [{"name": node, "amounts": dict(of)} for node, of in amounts.items()]},
        },
    }


def status_of(fluxjob: Object, now: float) -> Object:
    """The status of such a FluxJob."""
    hosts = Hostlist(one["name"] for one in fluxjob["spec"]["resources"]["nodes"]).encode()
    head = {"submitStatus": "statusSubmit", "state": "Running", "jobid": str(jobid_of(fluxjob)), "nodes": hosts}
    return {**head, "queuedAt": text_of(now), "startedAt": text_of(now)}


class Externals:
    """The holds of external jobs in the queues, by job id."""

    def __init__(self, queues: Mapping[str, ClusterQueue]) -> None:
        self._queues = queues
        self._holds: dict[int, tuple[ClusterQueue, list[int]]] = {}
        # Jobs whose FluxJobs have not been observed yet.
        self._new: set[int] = set()

    def give(self, jobid: int, queue: ClusterQueue, amounts: Amounts, now: int, end: float) -> None:
        """A new job holds amounts of nodes."""
        self._new.add(jobid)
        self._hold(jobid, queue, amounts, now, end)

    def drop(self, jobid: int) -> None:
        """A job holds nothing any more; unknown ones are ignored."""
        self._new.discard(jobid)
        queue, holds = self._holds.pop(jobid, (None, []))
        for hold in holds:
            if queue:
                queue.release(hold)

    def settle(self, fluxjobs: Mapping[int, Object], now: int) -> None:
        """Hold what the FluxJobs that there are say, in the queues as they are now."""
        for jobid, item in fluxjobs.items():
            self._new.discard(jobid)
            queue = self._queues.get(item["spec"].get("queue", ""))
            held = self._holds.get(jobid)
            if held and held[0] is queue:
                continue
            self._holds.pop(jobid, None)
            if queue:
                duration = item["spec"].get("duration", 0)
                end = seconds_of(item["metadata"]["creationTimestamp"]) + duration if duration else 0
                self._hold(jobid, queue, dict(amounts_of(item)), now, end)
        for jobid in [one for one in self._holds if one not in fluxjobs and one not in self._new]:
            self.drop(jobid)

    def _hold(self, jobid: int, queue: ClusterQueue, amounts: Amounts, now: int, end: float) -> None:
        self._holds[jobid] = queue, [queue.hold(node, of, now, end) for node, of in amounts.items()]


def amounts_of(fluxjob: Object) -> Iterator[tuple[str, requests.Amounts]]:
    """What a FluxJob has of nodes; entries that are none, as somebody may have written, are left out."""
    found = (fluxjob["spec"].get("resources") or {}).get("nodes")
    for one in found if isinstance(found, list) else ():
        amounts = one.get("amounts") if isinstance(one, dict) else None
        if isinstance(amounts, dict) and all(type(of) is int and of > 0 for of in amounts.values()):
            yield str(one.get("name")), amounts
