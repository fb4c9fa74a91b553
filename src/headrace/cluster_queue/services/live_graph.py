"""The graph of the live cluster for the services (`backend.Backend`).

Resources matched here are not given to jobs of the queue. A match is a FluxJob without an object (`cycle.external`)
from its response until Cancel. It starts now or, as a reservation, as soon as it fits beside the plans of the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import Struct

from headrace.formats.spec.constraint import ConstraintError, validate
from headrace.k8s.runtime.api import ApiError, Unreachable
from headrace.k8s.runtime.credentials import CredentialsError
from headrace.sched.graph import jobspec_text
from headrace.sched.graph.formats import export
from headrace.sched.graph.formats.writers import graph_object
from headrace.sched.graph.request import JobRequest, RequestError, parse_jobspec
from headrace.sched.graph.usage import Allocation

from ..controller import FluxqueueController
from ..cycle import external
from ..model import nodes, resources
from ..model.cluster_queue import ClusterQueue
from ..model.request import Refusal
from ..names import DEFAULT_QUEUE, GROUP_NAMES
from ..workloads import group
from .backend import Matched, Pods, Unanswerable
from .pools import CORE, in_pools
from .server import Tls, start

Object = dict[str, Any]
log = logging.getLogger("headrace.cluster_queue.services")

_MIB = 2**20
# Seconds that calls have to end when the services stop; and then again for the FluxJobs of failed calls to be deleted.
_GRACE = 1.0
# Seconds between attempts to delete such a FluxJob, initially and at most.
_RETRY, _LONGEST_RETRY = 0.5, 30.0
# Seconds for which the API server may still carry out a request whose response was lost (its `--request-timeout`).
_REQUEST_TIMEOUT = 60.0
# From this response code on, a request may have been carried out despite the error. The other codes mean that an object
# to delete does not exist, or is another one by now.
_SERVER_ERROR = 500
_GONE = (404, 409)


class Grpc(Struct, frozen=True, kw_only=True):
    """The options of `headrace fluxqueue run --grpc`.

    `address` is HOST:PORT, `queue` the FluxQueue whose nodes are matched.
    """

    address: str
    queue: str = DEFAULT_QUEUE
    tls: Tls | None = None


class LiveGraph:
    def __init__(self, controller: FluxqueueController, queue: str) -> None:
        self._controller = controller
        self._cycle = controller.cycle
        self.begun = controller.begun
        self._queue = queue
        # By job id, the FluxJobs of matches until the cycle has observed them (`_unseen`).
        self._made: dict[int, Object] = {}
        # Tasks that write FluxJobs, or delete those of failed matches. The references keep the tasks from being
        # garbage-collected.
        self._tasks: set[asyncio.Task[Any]] = set()

    def tell_unknown_queue(self) -> None:
        """Log a warning if the FluxQueue does not exist; requests are refused until it does."""
        if self._queue not in self._cycle.context.queues:
            log.warning(
                "there is no FluxQueue %s for gRPC to match; there are %s",
                *(self._queue, ", ".join(self._cycle.context.queues)),
            )

    async def init(self, policy: str, jgf: str) -> bool:
        return False

    async def match(self, jobspec: str, reserves: bool) -> Matched:
        queue = self._served()
        graph = queue.scheduler.graph
        try:
            if len(jobspec) > jobspec_text.LARGEST:
                most = jobspec_text.LARGEST
                raise RequestError(f"must have at most {most} characters (the limit of a FluxJob), not {len(jobspec)}")
            asked = in_pools(jobspec_text.decoded(jobspec), graph, queue.settings.topology)
            request = parse_jobspec(asked, graph.units)
            if request.constraint:
                validate(request.constraint)
        except (*jobspec_text.ERRORS, ConstraintError) as exc:
            raise Unanswerable(f"jobspec: {exc}") from None
        return await self._match(asked, request, reserves)

    async def match_pods(self, pods: Pods) -> Matched:
        amounts = {
            "cpu": pods.cores * CORE,
            "memory": -(-pods.memory // _MIB),
            "ephemeral-storage": -(-pods.storage // _MIB),
            "gpu": pods.gpus,
            "pod": 1,
        }
        jobspec = resources.jobspec(pods.group, "", pods.number, {kind: of for kind, of in amounts.items() if of})
        if pods.in_zone:
            # Where the cluster has zones, each node is in one zone.
            node = {"type": "node", "count": 1, "exclusive": False, "with": jobspec["resources"]}
            jobspec = {**jobspec, "resources": [node]}
        marks = {GROUP_NAMES[0]: pods.group, external.NUMBER: str(pods.number)} if pods.group else {}
        return await self._match(jobspec, parse_jobspec(jobspec), False, marks)

    async def _match(
        self, jobspec: Object, request: JobRequest, reserves: bool, marks: Mapping[str, str] | None = None
    ) -> Matched:
        """Give resources to a request. `marks` are annotations of its FluxJob."""
        began, now = time.perf_counter(), time.time()
        try:
            jobid, selection, start = self._cycle.externals.match(self._queue, jobspec, request, now, reserves)
        except Refusal as exc:
            raise Unanswerable(str(exc)) from None
        graph, amounts, is_later = selection.graph, nodes.amounts_in(selection), start > int(now)
        later = start if is_later else 0
        where = self._cycle.context.snapshot.namespace, self._queue
        body = external.made_of(jobid, *where, amounts, jobspec, request.duration, later)
        if marks:
            body["metadata"]["annotations"] = dict(marks)
        shown = graph_object(graph, Allocation(jobid, start, start + request.duration, is_later, selection))
        for node, item in zip(shown["graph"]["nodes"], selection.items, strict=True):
            named = graph.name(item.vertex)
            is_node = graph.type[item.vertex] == "node"
            node["metadata"].update(basename=named if is_node else graph.basename[item.vertex], name=named)
        name = body["metadata"]["name"]
        # gRPC cancels the call of a client that disconnects, but the request that the call has sent to the API server
        # is carried out anyway. So the request is a task of its own, which the cancellation does not reach.
        writing = self._begin(name, self._controller.make_external(body, now))
        try:
            made = await asyncio.shield(writing)
        except BaseException as exc:
            self._cycle.externals.drop(jobid)
            self._begin(name, self._delete(body, writing))
            if isinstance(exc, (ApiError, Unreachable, CredentialsError)):
                raise Unanswerable(f"the FluxJob of the match could not be created: {exc}") from None
            raise
        self._made = {**self._unseen(), jobid: made}
        cores = tuple((node, of.get("cpu", 0) // CORE) for node, of in amounts.items())
        return Matched(jobid, shown, cores, is_later, start, time.perf_counter() - began)

    def _begin(self, fluxjob: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task about the FluxJob of this name."""
        task = asyncio.create_task(work, name=fluxjob)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _delete(self, body: Object, writing: asyncio.Task[Object]) -> None:
        """Delete the FluxJob of a failed match, if it exists or may still be created.

        No client has its id, so it would hold its nodes without end.
        """
        clock, certain_at, delay = asyncio.get_running_loop().time, 0.0, _RETRY
        name, fluxjob = body["metadata"]["name"], body
        try:
            fluxjob = await writing
        except Exception as exc:
            if isinstance(exc, CredentialsError) or (isinstance(exc, ApiError) and exc.status < _SERVER_ERROR):
                return
            certain_at = clock() + _REQUEST_TIMEOUT
        while True:
            try:
                return await self._controller.unmake_external(fluxjob)
            except (ApiError, Unreachable, CredentialsError) as exc:
                if not isinstance(exc, ApiError) or exc.status not in _GONE:
                    log.warning("FluxJob %s of a failed match is not deleted yet: %s", name, exc)
                elif clock() >= certain_at:
                    return
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_RETRY)

    async def close(self) -> None:
        """End the pending work when the services stop.

        The FluxJobs of failed matches get some time to be deleted; those that may remain are named in the log.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + _GRACE
        while self._tasks and (left := end - clock()) > 0:
            await asyncio.wait(self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
            log.warning("FluxJob %s of a failed match may remain: delete it", task.get_name())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def cancel(self, jobid: int) -> None:
        item = self._cycle.context.snapshot.externals.get(jobid) or self._unseen().get(jobid)
        if item is None:
            raise Unanswerable(f"there is no job {jobid}")
        try:
            await self._controller.unmake_external(item)
        except (ApiError, Unreachable, CredentialsError) as exc:
            if isinstance(exc, ApiError) and exc.status == 404:
                self._cycle.externals.drop(jobid)
                raise Unanswerable(f"there is no job {jobid}") from None
            raise Unanswerable(f"the FluxJob of the match could not be deleted: {exc}") from None
        self._made.pop(jobid, None)
        self._cycle.externals.drop(jobid)

    def resources(self) -> str:
        return export.jgf(self._served().scheduler.graph)

    def groups(self) -> Mapping[str, int]:
        groups = {
            str(entry.item["metadata"]["name"]): entry.demand.pods
            for entry in self._cycle.context.entries.values()
            if entry.workload is group.WORKLOAD_KIND and not entry.state.is_over
        }
        matched: dict[str, int] = {}
        for item in {**self._unseen(), **self._cycle.context.snapshot.externals}.values():
            marks = item["metadata"].get("annotations") or {}
            if name := marks.get(GROUP_NAMES[0]):
                matched[name] = matched.get(name, 0) + int(marks.get(external.NUMBER, 0))
        return {**groups, **matched}

    def _served(self) -> ClusterQueue:
        """The FluxQueue to match. Raises Unanswerable."""
        queue = self._cycle.context.queues.get(self._queue)
        if queue is None:
            raise Unanswerable(f"there is no FluxQueue {self._queue}")
        return queue

    def _unseen(self) -> Mapping[int, Object]:
        """The FluxJobs that were created and that the cycle has not observed yet.

        For all others, the cycle knows whether they still exist.
        """
        return {jobid: item for jobid, item in self._made.items() if self._cycle.externals.is_new(jobid)}


class LiveServices:
    """The services while this process is the leader (`k8s.runtime.controller.Part`)."""

    name = "grpc"
    queue = ()

    def __init__(self, graph: LiveGraph, grpc: Grpc) -> None:
        self._graph = graph
        self._grpc = grpc

    async def work(self) -> None:
        """Serve until cancelled, once the queue knows its jobs. Raises OSError if it cannot listen."""
        await self._graph.begun.wait()
        self._graph.tell_unknown_queue()
        server, port = await start(self._graph, self._grpc.address, self._grpc.tls)
        log.info("gRPC listens", extra={"port": port, "tls": self._grpc.tls is not None})
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(_GRACE)
            await self._graph.close()
