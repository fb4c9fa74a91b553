"""A graph sent by a client, and the jobs matched on it. No I/O; the clock only measures matches.

Its time stands still at 0, as in the original services: a job holds its resources until it is cancelled, and a
reservation begins after the durations of those before it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from headrace.formats.spec.constraint import ConstraintError, validate
from headrace.sched.graph import Graph, GraphError, Scheduler
from headrace.sched.graph.formats import jgf
from headrace.sched.graph.formats.writers import graph_object
from headrace.sched.graph.jobspec_text import ERRORS, decoded
from headrace.sched.graph.labels import labels_of
from headrace.sched.graph.policies import by_name
from headrace.sched.graph.request import JobRequest, parse_jobspec
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.why import no_match

from .backend import Matched, Pods, Unanswerable

Object = dict[str, Any]
_NOW = 0
# The duration for which Fluence's pods are planned, in seconds.
_PODS_DURATION = 3600
_MIB = 2**20


class GivenGraph:
    """The graph of the last `init` (`backend.Backend`). `policy` is the default match policy."""

    def __init__(self, policy: str = "first") -> None:
        self._policy = policy
        self._scheduler: Scheduler | None = None
        self._text = ""
        self._last_jobid = 0
        # By job id, the group and the number of pods of a job that was matched as pods.
        self._pods: dict[int, tuple[str, int]] = {}

    async def init(self, policy: str, text: str) -> bool:
        self.load(policy, text)
        return True

    def load(self, policy: str, text: str) -> None:
        """Begin with a graph without jobs. Raises Unanswerable and then keeps the previous graph."""
        try:
            chosen = by_name(policy or self._policy)
        except ValueError as exc:
            raise Unanswerable(f"policy: {exc}") from None
        try:
            scheduler = Scheduler(jgf.read(text), chosen)
        except GraphError as exc:
            raise Unanswerable(f"jgf: {exc}") from None
        scheduler.prepare()
        self._scheduler, self._text, self._last_jobid, self._pods = scheduler, text, 0, {}

    def _graph(self) -> Scheduler:
        if self._scheduler is None:
            raise Unanswerable("there is no graph yet: call fluxion.FluxionService/Init first")
        return self._scheduler

    async def match(self, jobspec: str, reserves: bool) -> Matched:
        scheduler = self._graph()
        try:
            asked = decoded(jobspec)
            request = parse_jobspec(asked, scheduler.graph.units)
            if request.constraint:
                validate(request.constraint)
        except (*ERRORS, ConstraintError) as exc:
            raise Unanswerable(f"jobspec: {exc}") from None
        return self._match(scheduler, asked, request, reserves)

    async def match_pods(self, pods: Pods) -> Matched:
        scheduler = self._graph()
        jobspec = _jobspec(pods)
        found = self._match(scheduler, jobspec, parse_jobspec(jobspec), False)
        if pods.group:
            self._pods[found.jobid] = pods.group, pods.number
        return found

    def _match(self, scheduler: Scheduler, jobspec: Object, request: JobRequest, reserves: bool) -> Matched:
        began = time.perf_counter()
        jobid = self._last_jobid + 1
        if reserves:
            allocation = scheduler.reserve(jobid, request, _NOW).allocation
        else:
            allocation = scheduler.allocate(jobid, request, _NOW, explain=False).allocation
        if allocation is None:
            raise Unanswerable(no_match(scheduler, jobspec, request, _NOW, reserves))
        self._last_jobid = jobid
        seconds = time.perf_counter() - began
        allocation.selection.labels = labels_of(allocation.selection, request)
        shown = allocation_object(scheduler.graph, allocation)
        return Matched(jobid, shown, cores_of(shown), allocation.reserved, allocation.start, seconds)

    async def cancel(self, jobid: int) -> None:
        try:
            self._graph().cancel(jobid)
        except KeyError:
            raise Unanswerable(f"there is no job {jobid}") from None
        self._pods.pop(jobid, None)

    def resources(self) -> str:
        self._graph()
        return self._text

    def groups(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for group, count in self._pods.values():
            found[group] = found.get(group, 0) + count
        return found


def _jobspec(pods: Pods) -> Object:
    """The jobspec of pods on a graph like Fluence's: cores, memory (MB) and GPUs, but no storage."""
    wanted = {"core": pods.cores, "memory": max(pods.memory // _MIB, 1) if pods.memory else 0, "gpu": pods.gpus}
    inside = [{"type": kind, "count": count} for kind, count in wanted.items() if count]
    top: Object = {"type": "slot", "count": pods.number, "label": "default", "with": inside}
    if pods.in_zone:
        for kind in ("node", "subnet"):
            top = {"type": kind, "count": 1, "with": [top]}
    return {"resources": [top], "attributes": {"system": {"duration": _PODS_DURATION}}}


def allocation_object(graph: Graph, allocation: Allocation) -> Object:
    """The selected part of the graph (JGF). Each vertex has its basename, by which clients identify nodes."""
    found = graph_object(graph, allocation)
    for node, item in zip(found["graph"]["nodes"], allocation.selection.items, strict=True):
        node["metadata"].update(basename=graph.basename[item.vertex], name=graph.name(item.vertex))
    return found


def cores_of(allocation: Object) -> tuple[tuple[str, int], ...]:
    """The cores of each node of an allocation, by the node's basename.

    The path of a vertex below a node begins with the node's path.
    """
    vertices = [one["metadata"] for one in allocation["graph"]["nodes"]]
    counts = {one["paths"]["containment"]: 0 for one in vertices if one["type"] == "node"}
    for one in vertices:
        if one["type"] == "core":
            path = one["paths"]["containment"]
            while path and path not in counts:
                path = path.rpartition("/")[0]
            if path:
                counts[path] += one.get("size", 1)
    return tuple((one["basename"], counts[one["paths"]["containment"]]) for one in vertices if one["type"] == "node")
