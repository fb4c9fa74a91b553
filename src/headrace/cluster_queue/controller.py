"""The edge of the cluster queue: what has changed in the caches goes into the cycle, and what it asks for is written.

There is one core for all queues of a cluster, so one loop has it take step after step; workers write, the writes about
one workload in order. A write that fails is asked for again by the cycle, from what is then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from headrace.k8s.objects.kinds import PODS, Kind
from headrace.k8s.runtime.api import ApiError, Unreachable
from headrace.k8s.runtime.cache import Cache, shared
from headrace.k8s.runtime.controller import SHORTEST_REQUEUE, Shared
from headrace.k8s.runtime.credentials import CredentialsError
from headrace.k8s.runtime.events import Report, record
from headrace.k8s.runtime.watches import Selection, without_managed_fields
from headrace.k8s.runtime.work_queue import WorkQueue

from .crd import first_queue
from .cycle.actions import Action, Bind, Change, Create, Delete, PatchPod, Publish, Tell
from .cycle.cycle import Cycle
from .cycle.external import status_of
from .cycle.pin import binding
from .model.snapshot import MOST_OWNERS
from .model.snapshot import Change as Seen
from .names import BINDINGS, CLAIMS, FLUXJOBS, FLUXQUEUES, NAMESPACES, NODES, PRIORITY_CLASSES, QUEUE
from .store.writer import Writer
from .workloads import KINDS, is_foreign, others, owner_of

Object = dict[str, Any]

log = logging.getLogger("headrace.cluster_queue.controller")

# Seconds for which changes are gathered before a step, since what is created at a time comes as many of them; and, up
# to the longest, how many times as long as the last step took. A step looks at all pods of each job that has changed:
# with a step for each change of a pod, the growth of one job to thousands of pods would keep a core busy.
GATHERING, LONGEST_GATHERING = 0.05, 1.0
_OF_STEP = 9
WORKERS = 16
# Seconds after which another attempt is made at the first queue.
FIRST_QUEUE_RETRY = 1.0
# The API server's answers to a write about something that is gone or has changed since it was seen; that to a patch one
# of whose tests fails (RFC 6902), which otherwise says that the API server does not take what is written.
_STALE = (404, 409)
_INVALID = 422

# What is read of a pod and its containers.
_POD_SPEC = (
    *(
        "affinity",
        "nodeName",
        "nodeSelector",
        "overhead",
        "priority",
        "priorityClassName",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "schedulerName",
    ),
    *("schedulingGates", "tolerations", "topologySpreadConstraints", "activeDeadlineSeconds"),
)
_CONTAINER = ("name", "resources", "restartPolicy")
# What is read of a volume: whether there is a claim for it.
_VOLUME = ("name", "persistentVolumeClaim", "ephemeral")
_CONTAINERS = ("containers", "initContainers")
_MARKS = ("labels", "annotations")
_STATUSES = ("containerStatuses", "initContainerStatuses")


def trimmed_pod(pod: Object) -> Object:
    """A pod without what the queue does not read, as there may be very many."""
    kept = without_managed_fields(pod)
    status = pod.get("status") or {}
    told = [one for one in status.get("conditions") or () if _is_read(one)]
    read = (*_CONTAINER, "allocatedResources", *(("state",) if status.get("phase") == "Failed" else ()))
    statuses = {key: [_only(one, read) for one in status[key]] for key in _STATUSES if status.get(key)}
    return {
        **kept,
        "spec": {key: shared(value) for key, value in _trimmed_spec(pod["spec"]).items()},
        "status": {
            **_only(status, ("phase", "reason", "message")),
            **statuses,
            **({"conditions": told} if told else {}),
        },
    }


def _is_read(condition: Object) -> bool:
    """Whether a condition of a pod says why it is not bound, or that its node cannot resize it now."""
    is_unbound = condition["type"] == "PodScheduled" and condition["status"] == "False"
    return bool(is_unbound or condition["type"] == "PodResizePending")


def trimmed_workload(item: Object) -> Object:
    """An object that makes pods without what the queue does not read of their templates. One whose templates are none,
    as the definition of its kind may let users write, is left as it is for the cycle to refuse.
    """
    kept = without_managed_fields(item)
    with contextlib.suppress(TypeError, AttributeError, KeyError):
        kept = {**kept, "spec": _trimmed_templates(item["spec"]), "status": shared(item.get("status") or {})}
        kept["metadata"].update({key: shared(kept["metadata"][key]) for key in _MARKS if key in kept["metadata"]})
    return kept


def _trimmed_templates(part: Any) -> Any:
    """A part of a spec in which each template of a pod is cut down, however deep it is."""
    if isinstance(part, list):
        return [_trimmed_templates(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _trimmed_templates(value) for key, value in part.items()}
    pod = (part.get("template") or {}).get("spec") if isinstance(part.get("template"), dict) else None
    if isinstance(pod, dict) and "containers" in pod:
        meta = part["template"].get("metadata") or {}
        marks = {key: shared(value) for key, value in _only(meta, _MARKS).items()}
        found["template"] = {"metadata": marks, "spec": shared(_trimmed_spec(pod))}
    return found


def trimmed_fluxjob(fluxjob: Object) -> Object:
    """A FluxJob with one copy of what the statuses of those that wait have in common."""
    kept, status = without_managed_fields(fluxjob), fluxjob.get("status") or {}
    if "conditions" in status:
        kept["status"] = {**status, "conditions": shared(status["conditions"])}
    return kept


def trimmed_node(node: Object) -> Object:
    """A node without its images and addresses."""
    kept = without_managed_fields(node)
    return {**kept, "status": _only(node.get("status") or {}, ("allocatable", "conditions"))}


def trimmed_claim(claim: Object) -> Object:
    """A PersistentVolumeClaim with what tells whether it is bound."""
    kept = _only(claim["metadata"], ("name", "namespace", "uid", "resourceVersion"))
    return {"metadata": kept, "status": _only(claim.get("status") or {}, ("phase",))}


def _trimmed_spec(spec: Object) -> Object:
    inside = {key: [_only(one, _CONTAINER) for one in spec.get(key) or ()] for key in _CONTAINERS if spec.get(key)}
    claimed = [_only(one, _VOLUME) for one in spec.get("volumes") or () if len(_only(one, _VOLUME)) > 1]
    return {**_only(spec, _POD_SPEC), **inside, **({"volumes": claimed} if claimed else {})}


def gathering_after(took: float) -> float:
    """Seconds for which changes are gathered after a step that took so many."""
    return min(max(GATHERING, _OF_STEP * took), LONGEST_GATHERING)


def _only(item: Object, keys: tuple[str, ...]) -> Object:
    return {key: item[key] for key in keys if key in item}


class FluxqueueController:
    """The queues of a cluster in one process (`kube.runtime.controller.Part`); `namespace` is the queue's own."""

    name = "fluxqueue"

    def __init__(self, shared: Shared, namespace: str) -> None:
        self.cycle = Cycle(namespace)
        # The writer of the store, if there is one.
        self.store: Writer | None = None
        self.queue: WorkQueue[str] = WorkQueue(time.monotonic)
        self._shared = shared
        self._api = shared.api
        self._caches: dict[str, tuple[Kind, Cache]] = {}
        self._changes: list[Seen] = []
        self._todo: dict[str, tuple[Action, ...]] = {}
        self._works = False
        self._wake = asyncio.Event()
        # Set once the cycle has taken in all that there is.
        self.begun = asyncio.Event()
        foreign = [one.kind for one in others() if is_foreign(one)]
        for selection in (
            *(
                Selection(PODS, trim=trimmed_pod),
                *(Selection(one.kind, trim=trimmed_workload) for one in others()),
                Selection(NODES, trim=trimmed_node),
                Selection(CLAIMS, trim=trimmed_claim),
                Selection(FLUXJOBS, trim=trimmed_fluxjob),
            ),
            *(Selection(kind) for kind in (FLUXQUEUES, NAMESPACES, PRIORITY_CLASSES)),
        ):
            without = "the cluster does not have this kind" if selection.kind in foreign else ""
            cache = shared.watches.cache(selection, self._changing(selection.kind), without=without)
            self._caches[selection.kind.plural] = selection.kind, cache
        shared.controllers.append(self)
        for counter in (shared.reconciles, shared.errors):
            shared.metrics.count(counter, self.name, add=0)

    def binds(self, namespace: str) -> bool:
        """Whether the queue of a namespace binds its pods itself, as far as the caches know."""
        space = self._caches[NAMESPACES.plural][1].get("", namespace)
        name = (space["metadata"].get("labels") or {}).get(QUEUE, "") if space else ""
        queue = self._caches[FLUXQUEUES.plural][1].get("", name)
        return queue is not None and (queue.get("spec") or {}).get("placement") == "bind"

    def above(self, item: Object) -> Iterator[Object]:
        """The controller of an object, the controller of that, and so on; as cached, with their `kind`."""
        for _ in range(MOST_OWNERS):
            owner, namespace = owner_of(item), item["metadata"].get("namespace", "")
            if owner is None:
                return
            _, cache = self._caches[KINDS[owner["kind"]].kind.plural]
            found = cache.get(namespace, owner["name"])
            if found is None or found["metadata"]["uid"] != owner["uid"]:
                return
            item = {**found, "kind": owner["kind"]}
            yield item

    async def work(self) -> None:
        """Keep the queues, from all that is there on, until cancelled. The caches must be filled."""
        self._works = True
        self._changes = [Seen(kind, item) for kind, cache in self._caches.values() for item in cache]
        log.info("working", extra={kind.plural: len(cache) for kind, cache in self._caches.values()})
        self._wake.set()
        await asyncio.gather(self._make_first_queue(), self._steps(), *(self._worker() for _ in range(WORKERS)))

    async def _make_first_queue(self) -> None:
        """Make the queue `default` where there is no queue: it cannot be applied in one go with its definition, which
        nobody knows by then.
        """
        while not self._caches[FLUXQUEUES.plural][1]:
            try:
                self._seen(FLUXQUEUES, await self._api.create(FLUXQUEUES, "", first_queue()))
            except (ApiError, Unreachable, CredentialsError) as exc:
                log.warning("no first queue yet: %s", exc)
                await asyncio.sleep(FIRST_QUEUE_RETRY)

    # --- what has changed

    def _changing(self, kind: Kind) -> Callable[[Object], None]:
        def changed(item: Object) -> None:
            if not self._works:
                return
            meta = item["metadata"]
            held = self._caches[kind.plural][1].get(meta.get("namespace", ""), meta["name"])
            is_there = held is not None and held["metadata"].get("uid") == meta.get("uid")
            self._note(Seen(kind, held) if held is not None and is_there else Seen(kind, item, gone=True))

        return changed

    def _note(self, change: Seen) -> None:
        self._changes.append(change)
        self._wake.set()

    def _seen(self, kind: Kind, item: Object) -> None:
        """Take an object of a response in before the watch reports it."""
        if kind.plural in self._caches:
            self._caches[kind.plural][1].put(item)
            self._changing(kind)(item)

    async def make_external(self, fluxjob: Object, now: float) -> Object:
        """Write down a job of another scheduler (`cycle.external`). Raises ApiError, Unreachable, CredentialsError."""
        meta = fluxjob["metadata"]
        made = await self._api.create(FLUXJOBS, meta["namespace"], fluxjob)
        self._seen(FLUXJOBS, made)
        status = {"metadata": {"uid": made["metadata"]["uid"]}, "status": status_of(made, now)}
        try:
            self._seen(FLUXJOBS, await self._api.merge(FLUXJOBS, meta["namespace"], meta["name"], status, "status"))
        except (ApiError, Unreachable, CredentialsError) as exc:
            # What the job has is in its spec; the status is for people to read.
            log.warning("no status of %s: %s", meta["name"], exc)
        return made

    async def unmake_external(self, fluxjob: Object) -> None:
        """Such a job has ended. Its FluxJob has no uid where the answer to its creation was lost. Raises ApiError,
        Unreachable, CredentialsError.
        """
        meta = fluxjob["metadata"]
        await self._api.delete(FLUXJOBS, meta["namespace"], meta["name"], meta.get("uid", ""))
        if "uid" in meta:
            self._note(Seen(FLUXJOBS, fluxjob, gone=True))

    # --- steps

    async def _steps(self) -> None:
        wake_at, gathering = 0.0, GATHERING
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), max(min(wake_at - time.time(), 3600.0), 0.0))
            except asyncio.TimeoutError:
                pass
            await asyncio.sleep(gathering)
            self._wake.clear()
            changes, self._changes = self._changes, []
            began = time.perf_counter()
            if self.begun.is_set():
                steps = self.cycle.step(changes, time.time())
            else:
                # The first step takes in all that there is. That may be so much that the Lease would be lost if nothing
                # else went on meanwhile; nobody else uses the cycle before it has begun.
                steps = await asyncio.to_thread(self.cycle.step, changes, time.time())
                self.begun.set()
            self._shared.metrics.count(self._shared.reconciles, self.name)
            took = time.perf_counter() - began
            gathering = gathering_after(took)
            self._shared.metrics.observe(self._shared.seconds, took, self.name)
            for uid, exc in steps.defects:
                self._shared.metrics.count(self._shared.errors, self.name)
                log.error("defect of the queue, or of an object", extra={"workload": uid}, exc_info=exc)
            if self.store:
                self.store.put(steps.records)
                self.store.begin()
            for about, writes in steps.writes.items():
                self._todo[about] = writes
                self.queue.add(about)
            wake_at = max(steps.wake_at, time.time() + SHORTEST_REQUEUE)

    # --- writes

    async def _worker(self) -> None:
        while True:
            about = await self.queue.get()
            try:
                writes = self._todo.pop(about, None)
                if writes is None:
                    # It has failed before: it is asked for anew.
                    self.cycle.context.touch(about)
                    self._wake.set()
                for action in writes or ():
                    try:
                        await self._carry_out(action)
                    except ApiError as exc:
                        await self._tell_refusal(action, exc)
                        raise
                if writes:
                    self.queue.succeeded(about)
            except (ApiError, Unreachable, CredentialsError) as exc:
                delay = self.queue.add_failed(about)
                if not isinstance(exc, ApiError) or exc.status not in (*_STALE, _INVALID):
                    self._shared.metrics.count(self._shared.errors, self.name)
                    log.warning("%s, again in %.1f s", exc, delay, extra={"workload": about})
            except Exception:
                self.queue.add_failed(about)
                self._shared.metrics.count(self._shared.errors, self.name)
                log.exception("defect of the queue", extra={"workload": about})
            finally:
                self.queue.done(about)

    async def _tell_refusal(self, action: Action, exc: ApiError) -> None:
        """Say in the log and in an Event about the workload that the API server does not take what is to be written.
        It would stay so however often that is written again.

        Raises Unreachable, CredentialsError.
        """
        if exc.status != _INVALID or isinstance(action, PatchPod):
            return
        self._shared.metrics.count(self._shared.errors, self.name)
        body = action.body if isinstance(action, Create) else action.item if isinstance(action, Change) else None
        meta = body["metadata"] if body else {}
        log.warning("the API server refuses a write: %s", exc, extra={"object": meta.get("name", "")})
        # Of the pods of a group, the first is told.
        for owner in (meta.get("ownerReferences") or ())[:1] if isinstance(action, Create) else ():
            own = {"name": owner["name"], "uid": owner["uid"], "namespace": meta["namespace"], "resourceVersion": ""}
            report = Report("Warning", "NotQueued", f"its FluxJob {meta['name']} is refused by the API server: {exc}")
            about = {"metadata": own, "status": {}}
            await record(self._api, KINDS[owner["kind"]].kind, about, report, time.time(), self._shared.component)

    async def _carry_out(self, action: Action) -> None:
        """Write what the cycle asks for. Raises ApiError, Unreachable, CredentialsError."""
        api = self._api
        if isinstance(action, Create):
            meta = action.body["metadata"]
            self._seen(FLUXJOBS, await api.create(FLUXJOBS, meta["namespace"], action.body))
        elif isinstance(action, Publish):
            meta = action.item["metadata"]
            seen = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            body = {"metadata": seen, "status": action.status}
            place = meta.get("namespace", ""), meta["name"]
            self._seen(action.kind, await api.merge(action.kind, *place, body, "status"))
        elif isinstance(action, Change):
            meta = action.item["metadata"]
            body = {**action.body, "metadata": {**action.body.get("metadata", {}), "uid": meta["uid"]}}
            self._seen(action.kind, await api.merge(action.kind, meta["namespace"], meta["name"], body))
        elif isinstance(action, PatchPod):
            meta = action.pod["metadata"]
            self._seen(PODS, await api.patch(PODS, meta["namespace"], meta["name"], action.operations))
        elif isinstance(action, Bind):
            await api.create(BINDINGS, action.pod["metadata"]["namespace"], binding(action.pod, action.node))
        elif isinstance(action, Delete):
            meta = action.item["metadata"]
            await api.delete(action.kind, meta["namespace"], meta["name"], meta["uid"])
        elif isinstance(action, Tell):
            about = {"metadata": action.item["metadata"], "status": action.before}
            component = action.component or self._shared.component
            await record(api, action.kind, about, action.report, time.time(), component)
