"""The I/O of the cluster queue: feeds cache changes to the cycle and carries out its writes.

One cycle serves all queues of a cluster, so a single loop runs its steps. Workers carry out the writes; the writes
about one workload keep their order. When a write fails, the cycle computes it again from the state at that time.
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

# Seconds for which changes are collected before a step, because objects created together arrive as many changes. The
# time grows with the duration of the last step (by the factor `_OF_STEP`), up to the longest. A step looks at all pods
# of each changed job: with one step for each pod change, a job that grows to thousands of pods would keep a core busy.
GATHERING, LONGEST_GATHERING = 0.05, 1.0
_OF_STEP = 9
WORKERS = 16
# Seconds between attempts to create the first queue.
FIRST_QUEUE_RETRY = 1.0
# Response codes for a write about an object that is gone or has changed since it was seen. 422 is also the response to
# a JSON patch with a failed test (RFC 6902); for other writes it means that the API server rejects the content.
_STALE = (404, 409)
_INVALID = 422

# The fields of a pod and its containers that the queue reads.
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
# The fields of a volume that the queue reads: they show whether a claim exists for it.
_VOLUME = ("name", "persistentVolumeClaim", "ephemeral")
_CONTAINERS = ("containers", "initContainers")
_MARKS = ("labels", "annotations")
_STATUSES = ("containerStatuses", "initContainerStatuses")


def trimmed_pod(pod: Object) -> Object:
    """A pod reduced to the fields that the queue reads; a cluster may have very many pods."""
    kept = without_managed_fields(pod)
    status = pod.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if _is_read(one)]
    read = (*_CONTAINER, "allocatedResources", *(("state",) if status.get("phase") == "Failed" else ()))
    statuses = {key: [_only(one, read) for one in status[key]] for key in _STATUSES if status.get(key)}
    return {
        **kept,
        "spec": {key: shared(value) for key, value in _trimmed_spec(pod["spec"]).items()},
        "status": {
            **_only(status, ("phase", "reason", "message")),
            **statuses,
            **({"conditions": conditions} if conditions else {}),
        },
    }


def _is_read(condition: Object) -> bool:
    """Whether a condition says why a pod is not bound, or that its node cannot resize it now."""
    is_unbound = condition["type"] == "PodScheduled" and condition["status"] == "False"
    return bool(is_unbound or condition["type"] == "PodResizePending")


def trimmed_workload(item: Object) -> Object:
    """A workload whose pod templates are reduced to the fields that the queue reads.

    If the templates are malformed, which the definition of a kind may allow, the object stays as it is and the cycle
    refuses it.
    """
    kept = without_managed_fields(item)
    with contextlib.suppress(TypeError, AttributeError, KeyError):
        kept = {**kept, "spec": _trimmed_templates(item["spec"]), "status": shared(item.get("status") or {})}
        kept["metadata"].update({key: shared(kept["metadata"][key]) for key in _MARKS if key in kept["metadata"]})
    return kept


def _trimmed_templates(part: Any) -> Any:
    """A part of a spec whose pod templates, at any depth, are reduced to the fields that the queue reads."""
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
    """A FluxJob whose status conditions are shared with other FluxJobs that have equal ones."""
    kept, status = without_managed_fields(fluxjob), fluxjob.get("status") or {}
    if "conditions" in status:
        kept["status"] = {**status, "conditions": shared(status["conditions"])}
    return kept


def trimmed_node(node: Object) -> Object:
    """A node without its images and addresses."""
    kept = without_managed_fields(node)
    return {**kept, "status": _only(node.get("status") or {}, ("allocatable", "conditions"))}


def trimmed_claim(claim: Object) -> Object:
    """A PersistentVolumeClaim reduced to its identity and its phase."""
    kept = _only(claim["metadata"], ("name", "namespace", "uid", "resourceVersion"))
    return {"metadata": kept, "status": _only(claim.get("status") or {}, ("phase",))}


def _trimmed_spec(spec: Object) -> Object:
    inside = {key: [_only(one, _CONTAINER) for one in spec.get(key) or ()] for key in _CONTAINERS if spec.get(key)}
    claimed = [_only(one, _VOLUME) for one in spec.get("volumes") or () if len(_only(one, _VOLUME)) > 1]
    return {**_only(spec, _POD_SPEC), **inside, **({"volumes": claimed} if claimed else {})}


def gathering_after(took: float) -> float:
    """Seconds to collect changes after a step that took `took` seconds."""
    return min(max(GATHERING, _OF_STEP * took), LONGEST_GATHERING)


def _only(item: Object, keys: tuple[str, ...]) -> Object:
    return {key: item[key] for key in keys if key in item}


class FluxqueueController:
    """All queues of a cluster in one process (`k8s.runtime.controller.Part`).

    `namespace` is the namespace of the queue itself.
    """

    name = "fluxqueue"

    def __init__(self, shared: Shared, namespace: str) -> None:
        self.cycle = Cycle(namespace)
        # The writer of the history store; None without a store.
        self.store: Writer | None = None
        self.queue: WorkQueue[str] = WorkQueue(time.monotonic)
        self._shared = shared
        self._api = shared.api
        self._caches: dict[str, tuple[Kind, Cache]] = {}
        self._changes: list[Seen] = []
        self._todo: dict[str, tuple[Action, ...]] = {}
        self._works = False
        self._wake = asyncio.Event()
        # Set once the cycle has processed all objects in the caches.
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
        """Whether the queue of a namespace binds its pods itself, according to the caches."""
        space = self._caches[NAMESPACES.plural][1].get("", namespace)
        name = (space["metadata"].get("labels") or {}).get(QUEUE, "") if space else ""
        queue = self._caches[FLUXQUEUES.plural][1].get("", name)
        return queue is not None and (queue.get("spec") or {}).get("placement") == "bind"

    def above(self, item: Object) -> Iterator[Object]:
        """The chain of controllers above an object, nearest first, from the caches and with their `kind`."""
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
        """Run the queues until cancelled, beginning with all cached objects. The caches must be filled."""
        self._works = True
        self._changes = [Seen(kind, item) for kind, cache in self._caches.values() for item in cache]
        log.info("working", extra={kind.plural: len(cache) for kind, cache in self._caches.values()})
        self._wake.set()
        await asyncio.gather(self._make_first_queue(), self._steps(), *(self._worker() for _ in range(WORKERS)))

    async def _make_first_queue(self) -> None:
        """Create the queue `default` if there is no queue.

        The manifest of the definition cannot contain it: the API server does not know the new kind yet when both are
        applied together.
        """
        while not self._caches[FLUXQUEUES.plural][1]:
            try:
                self._seen(FLUXQUEUES, await self._api.create(FLUXQUEUES, "", first_queue()))
            except (ApiError, Unreachable, CredentialsError) as exc:
                log.warning("cannot create the queue default yet: %s", exc)
                await asyncio.sleep(FIRST_QUEUE_RETRY)

    # --- changes

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
        """Process an object from a response before the watch reports it."""
        if kind.plural in self._caches:
            self._caches[kind.plural][1].put(item)
            self._changing(kind)(item)

    async def make_external(self, fluxjob: Object, now: float) -> Object:
        """Create the FluxJob of another scheduler's job (`cycle.external`).

        Raises ApiError, Unreachable, CredentialsError.
        """
        meta = fluxjob["metadata"]
        made = await self._api.create(FLUXJOBS, meta["namespace"], fluxjob)
        self._seen(FLUXJOBS, made)
        status = {"metadata": {"uid": made["metadata"]["uid"]}, "status": status_of(made, now)}
        try:
            self._seen(FLUXJOBS, await self._api.merge(FLUXJOBS, meta["namespace"], meta["name"], status, "status"))
        except (ApiError, Unreachable, CredentialsError) as exc:
            # The resources of the job are in its spec. The status is only for people to read.
            log.warning("cannot write the status of %s: %s", meta["name"], exc)
        return made

    async def unmake_external(self, fluxjob: Object) -> None:
        """Delete the FluxJob of another scheduler's job that has ended.

        The FluxJob has no uid if the response to its creation was lost. Raises ApiError, Unreachable, CredentialsError.
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
                # The first step processes all objects. In the event loop it could take so long that the Lease would be
                # lost. A thread is safe because nothing else uses the cycle before `begun` is set.
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
                    # The write failed before: the next step computes it again.
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
        """Report in the log and in an Event that the API server rejects the content of a write.

        Retrying would not help. Raises Unreachable, CredentialsError.
        """
        if exc.status != _INVALID or isinstance(action, PatchPod):
            return
        self._shared.metrics.count(self._shared.errors, self.name)
        body = action.body if isinstance(action, Create) else action.item if isinstance(action, Change) else None
        meta = body["metadata"] if body else {}
        log.warning("the API server rejected a write: %s", exc, extra={"object": meta.get("name", "")})
        # For a group of pods, the Event is about the first pod.
        for owner in (meta.get("ownerReferences") or ())[:1] if isinstance(action, Create) else ():
            own = {"name": owner["name"], "uid": owner["uid"], "namespace": meta["namespace"], "resourceVersion": ""}
            report = Report("Warning", "NotQueued", f"the API server rejected its FluxJob {meta['name']}: {exc}")
            about = {"metadata": own, "status": {}}
            await record(self._api, KINDS[owner["kind"]].kind, about, report, time.time(), self._shared.component)

    async def _carry_out(self, action: Action) -> None:
        """Carry out a write. Raises ApiError, Unreachable, CredentialsError."""
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
