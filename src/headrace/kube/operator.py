"""The operator: caches of the objects, a queue of MiniClusters to reconcile, and workers that decide (`reconcile`) and
act (`execute`). This file only connects these; all decisions are in pure modules.

When idle, the operator makes no requests but its watches and the renewal of its Lease: nothing is polled, and a
reconcile without changes writes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct

from ..minicluster.fields import MiniCluster
from ..minicluster.pod_plan import CHANNEL_PORT
from ..minicluster.validate import check
from ..spec.curve_certificate import key_pair
from . import keys, names
from .builders import Images, desired, view_image
from .core import pods
from .core.fingerprint import HOSTS, TRIMMED, content_of, hosts_of
from .core.job_end import job_end
from .core.observed import Observed
from .core.reconcile import FINALIZER, Settings, is_ours, reconcile, without_server_fields
from .execute import Executor
from .kinds import MINICLUSTERS
from .links import Keys, Links
from .operator_names import OPERATOR, OTHER_LEASE, OTHER_NAMESPACE
from .runtime.api import CONFIG_MAPS, EVENTS, JOBS, LEASES, PODS, SECRETS, SERVICES, Api, ApiError, Kind, Unreachable
from .runtime.cache import Cache, Key, key_of, owner_of
from .runtime.credentials import CredentialsError
from .runtime.events import Report, record
from .runtime.lease import seconds_fresh
from .runtime.metrics import Metrics
from .runtime.reflector import Reflector
from .runtime.work_queue import WorkQueue
from .runtime.writes import Taken

Object = dict[str, Any]

log = logging.getLogger("headrace.kube.operator")

# Seconds between two writes of a status that differs only in counts and texts.
STATUS_INTERVAL = 2.0
# Seconds for which changes of followers' pods are collected, since each pod changes several times as it starts.
POD_GATHERING = 0.25
# The least number of seconds until the next reconcile that another one asks for: a time in the past, which is a defect,
# must not keep the operator from everything else.
SHORTEST_REQUEUE = 0.5
# Seconds after which a name that another object has is tried again.
TAKEN_RETRY = 30.0
# Seconds after which one is tried again whose object is about to be deleted, as after `kubectl delete` and `apply`.
LEAVING_RETRY = 1.0
WORKERS = 8


class Options(Struct, frozen=True, kw_only=True):
    """The operator's options; without `namespaces`, it manages the MiniClusters of all of them.

    With `namespaces`, the Lease of the Flux Operator in Go is looked for in these and in `flux_operator_namespace`, ""
    for no other; without, it is found in any.
    """

    namespaces: tuple[str, ...] = ()
    images: Images = Images()
    cluster_domain: str = "cluster.local"
    flux_operator_namespace: str = OTHER_NAMESPACE


class Operator:
    """One operator on one cluster: `watch` fills its caches, `work` acts."""

    def __init__(self, api: Api, options: Options, metrics: Metrics) -> None:
        self.api = api
        self.options = options
        self.metrics = metrics
        self.queue: WorkQueue[Key] = WorkQueue(time.monotonic)
        self.clusters, self.jobs, self.pods = Cache(_trim), Cache(_trim_job), Cache(_trim_pod)
        self.config_maps, self.services, self.leases = Cache(_trim_config_map), Cache(_trim), Cache(_trim)
        self.links = Links(self._lead_changed)
        self._executor = Executor(api, self._seen, self.links.tell, self._secret_of)
        self._settings = Settings(
            build=self._build, replaced_image=lambda cluster: view_image(cluster, options.images)[1]
        )
        self._memory: dict[str, _Memory] = {}
        self._reflectors = self._make_reflectors()
        _declare(metrics, self)

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled once."""
        return all(one.synced.is_set() for one in self._reflectors)

    async def watch(self) -> None:
        """Fill the caches and keep them current, until cancelled; an operator that waits for the Lease does so, too."""
        await asyncio.gather(*(one.run() for one in self._reflectors))

    async def work(self) -> None:
        """Reconcile MiniClusters, until cancelled; the next operator completes an interrupted reconcile."""
        for one in self._reflectors:
            await one.synced.wait()
        for cluster in self.clusters:
            self.queue.add(key_of(cluster))
        log.info("working", extra={"miniclusters": len(self.clusters)})
        try:
            await asyncio.gather(*(self._worker() for _ in range(WORKERS)))
        finally:
            self.links.close()

    # --- changes, and the MiniClusters that they concern

    def _make_reflectors(self) -> list[Reflector]:
        watched, elsewhere = self.options.namespaces, self.options.flux_operator_namespace
        found = [one for where in watched or ("",) for one in self._reflectors_of(where)]
        if watched and elsewhere and elsewhere not in watched:
            found.append(self._reflector_of_lease(elsewhere, "MiniClusters do not wait for the Flux Operator there"))
        return found

    def _reflectors_of(self, where: str) -> list[Reflector]:
        """The reflectors of one namespace, or of all ("")."""
        ours = f"{names.MANAGED_BY}={names.MANAGER}"
        children = ((JOBS, self.jobs), (CONFIG_MAPS, self.config_maps), (SERVICES, self.services))
        return [
            Reflector(self.api, MINICLUSTERS, self.clusters, self._cluster_changed, where),
            *(Reflector(self.api, kind, cache, self._child_changed, where, ours) for kind, cache in children),
            Reflector(self.api, PODS, self.pods, self._pod_changed, where, ours),
            self._reflector_of_lease(where),
        ]

    def _reflector_of_lease(self, where: str, without: str = "") -> Reflector:
        # A right to list and watch one name holds only for requests with this field selector.
        fields = f"metadata.name={OTHER_LEASE}"
        return Reflector(self.api, LEASES, self.leases, self._lease_changed, where, fields=fields, without=without)

    def _cluster_changed(self, cluster: Object) -> None:
        self.queue.add(key_of(cluster))

    def _child_changed(self, child: Object) -> None:
        for key in _clusters_of(child):
            self.queue.add(key)

    def _pod_changed(self, pod: Object) -> None:
        keys = _clusters_of(pod)
        for one in pod["metadata"].get("ownerReferences") or ():
            if one.get("controller") and one.get("kind") == JOBS.kind:
                job = self.jobs.get(pod["metadata"].get("namespace", ""), one["name"])
                keys += _clusters_of(job) if job is not None else []
                if job is not None and pods.index_of(pod) == 0 and pods.is_over(pod):
                    self._recall(owner_of(job)).ended_leads[one["uid"]] = pod
        for key in keys:
            if pods.index_of(pod) == 0:
                self.queue.add(key)
            else:
                self.queue.add_at(key, time.monotonic() + POD_GATHERING)

    def _lease_changed(self, lease: Object) -> None:
        """A renewal of the other operator's Lease needs no reconcile, and its expiry is scheduled. If that operator has
        released it, the waiting MiniClusters are reconciled at once.
        """
        is_free = self._other_operator_seconds(time.time()) <= 0
        for cluster in self.clusters:
            status = cluster.get("status") or {}
            waits = any(
                one["type"] == "StandingBack" and one["status"] == "True" for one in status.get("conditions", ())
            )
            if not status.get("phase") or (waits and is_free):
                self.queue.add(key_of(cluster))

    def _other_operator_seconds(self, now: float) -> float:
        """The seconds from `now` for which the Go operator's Lease is held; 0 or less if it is not."""
        moment = datetime.fromtimestamp(now, timezone.utc)
        return max((seconds_fresh(lease, moment) for lease in self.leases), default=0.0)

    def _lead_changed(self, uid: str) -> None:
        memory = self._memory.get(uid)
        if memory is not None:
            self.queue.add(memory.key)

    def _seen(self, kind: Kind, item: Object) -> None:
        """Put an object of a response into its cache before the watch reports it."""
        uid = owner_of(item)
        if kind is SECRETS:
            memory = self._recall(uid)
            memory.secret, memory.keys = True, link_keys(item)
            return
        metadata = item["metadata"]
        if kind is MINICLUSTERS and metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            # The last finalizer is gone, and the object with it; its watch may have told that already.
            return
        caches = {MINICLUSTERS: self.clusters, JOBS: self.jobs, PODS: self.pods}
        caches |= {CONFIG_MAPS: self.config_maps, SERVICES: self.services}
        caches[kind].put(item)

    # --- one reconcile

    async def _worker(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._reconcile(key)
                self.queue.succeeded(key)
            except (ApiError, Unreachable, CredentialsError) as exc:
                delay = self.queue.add_failed(key)
                self.metrics.count("headrace_operator_errors_total")
                log.warning("%s, again in %.1f s", exc, delay, extra=_where(key))
            except Exception:
                self.queue.add_failed(key)
                self.metrics.count("headrace_operator_errors_total")
                log.exception("defect of the operator", extra=_where(key))
            finally:
                self.queue.done(key)

    async def _reconcile(self, key: Key) -> None:
        cluster = self.clusters.get(*key)
        if cluster is None:
            self._forget_absent()
            return
        self._recall(cluster["metadata"]["uid"]).key = key
        if not is_ours(cluster):
            self.links.drop(cluster["metadata"]["uid"])
            if FINALIZER not in (cluster["metadata"].get("finalizers") or ()):
                return
        if self._recall(cluster["metadata"]["uid"]).namespace_ends and not cluster["metadata"].get("deletionTimestamp"):
            # The MiniCluster is being deleted with its namespace, or will be.
            return
        began = time.perf_counter()
        uid, now = cluster["metadata"]["uid"], time.time()
        observed = self.observe(cluster, now)
        memory = self._recall(uid)
        actions = reconcile(observed, self._settings, now)
        self.metrics.count("headrace_operator_reconciles_total")
        self.metrics.observe("headrace_operator_reconcile_seconds", time.perf_counter() - began)
        refused, memory.refused = memory.refused, ""
        try:
            for notice in actions.notices:
                await self._report(cluster, notice, now)
            await self._executor.carry_out(cluster, actions.steps)
            if actions.steps:
                memory.taken, memory.leaves_since = (), 0.0
        except Taken as exc:
            memory.leaves_since = memory.leaves_since or now
            if exc.leaves and now < memory.leaves_since + TAKEN_RETRY:
                self.queue.add_at(key, time.monotonic() + LEAVING_RETRY)
                return
            known = exc.what in memory.taken
            memory.taken, memory.try_taken_at = (exc.what,), now + TAKEN_RETRY
            # The next reconcile writes the status, and tries again in time.
            self.queue.add_at(key, time.monotonic() + (TAKEN_RETRY if known else 0.0))
            return
        except ApiError as exc:
            if _namespace_ends(exc):
                memory.namespace_ends = True
                log.info("the namespace is being deleted", extra=_where(key))
                return
            # Temporary errors are only retried; a refusal is also shown in the status.
            if exc.status in (400, 403, 413, 422) and not refused:
                self.queue.add(key)
            memory.refused = exc.message if exc.status in (400, 403, 413, 422) else ""
            await self._publish_status(cluster, self.observe(cluster, now), now)
            raise
        await self._publish(cluster, actions.events, actions.status, now)
        if is_ours(cluster):
            await self._link(observed, memory)
        if actions.read_events:
            await self._read_events(observed, memory, key)
        if actions.requeue_at is not None:
            self.queue.add_at(key, time.monotonic() + max(actions.requeue_at - now, SHORTEST_REQUEUE))

    async def _publish_status(self, cluster: Object, observed: Observed, now: float) -> None:
        """Write only the status, after the steps were refused."""
        actions = reconcile(observed, self._settings, now)
        await self._publish(cluster, actions.events, actions.status, now)

    def observe(self, cluster: Object, now: float) -> Observed:
        """The operator's knowledge of a MiniCluster."""
        uid = cluster["metadata"]["uid"]
        memory = self._recall(uid)
        jobs = {one["metadata"]["name"]: one for one in self.jobs.owned_by(uid)}
        pods_of = {name: self._pods_of(job, memory) for name, job in jobs.items()}
        other = self._other_operator_seconds(now)
        if cluster["metadata"].get("deletionTimestamp"):
            memory.deleting_since = memory.deleting_since or now
        return Observed(
            cluster=cluster,
            jobs=jobs,
            config_maps={one["metadata"]["name"]: one for one in self.config_maps.owned_by(uid)},
            services={one["metadata"]["name"]: one for one in self.services.owned_by(uid)},
            pods={**pods_of, "": self.pods.owned_by(uid)},
            secret=memory.secret,
            taken=memory.taken,
            try_taken_at=memory.try_taken_at,
            refused=memory.refused,
            lead=self.links.lead(uid),
            other_operator_until=now + other if other > 0 else 0.0,
            warnings=memory.warnings,
            pulled=memory.pulled,
            deleting_since=memory.deleting_since,
        )

    def _pods_of(self, job: Object, memory: _Memory) -> list[Object]:
        """The pods of a Job. Of an ended Job, its remembered lead is included: Kubernetes may have deleted that pod as
        soon as it had ended, and only the pod has the lead's exit code.
        """
        found, uid = self.pods.owned_by(job["metadata"]["uid"]), job["metadata"]["uid"]
        if job_end(job) and uid in memory.ended_leads and not any(pods.index_of(pod) == 0 for pod in found):
            found = [*found, memory.ended_leads[uid]]
        return found

    async def _publish(self, cluster: Object, events: tuple[Report, ...], status: Object | None, now: float) -> None:
        meta = cluster["metadata"]
        for event in events:
            await self._report(cluster, event, now)
        if status is None:
            return
        memory = self._recall(meta["uid"])
        if not _is_urgent(cluster.get("status") or {}, status) and now < memory.status_at + STATUS_INTERVAL:
            self.queue.add_at(key_of(cluster), time.monotonic() + memory.status_at + STATUS_INTERVAL - now)
            return
        memory.status_at = now
        await self._executor.writes.publish(cluster, status)

    async def _report(self, cluster: Object, event: Report, now: float) -> None:
        await record(self.api, MINICLUSTERS, cluster, event, now, OPERATOR)

    async def _link(self, observed: Observed, memory: _Memory) -> None:
        """Connect to the lead while it runs, and disconnect otherwise."""
        address = "" if job_end(observed.job) else lead_address(observed)
        if not address:
            self.links.drop(observed.uid)
        elif address != self.links.address(observed.uid):
            if memory.keys is None:
                await self._look_for_secret(observed, memory)
            if memory.keys is not None:
                self.links.keep(observed.uid, address, memory.keys)

    async def _look_for_secret(self, observed: Observed, memory: _Memory) -> None:
        """Find out whether the Secret exists and is the MiniCluster's own. Secrets are not watched."""
        before = memory.secret
        try:
            found = await self.api.get(SECRETS, observed.namespace, names.secret_of(observed.name))
        except ApiError as exc:
            if exc.status != 404:
                raise
            memory.secret = False
        else:
            memory.secret = owner_of(found) == observed.uid
            if memory.secret:
                self._seen(SECRETS, found)
        if before is not memory.secret and False in (before, memory.secret):
            self.queue.add(memory.key)

    async def _read_events(self, observed: Observed, memory: _Memory, key: Key) -> None:
        """Read the Events of Jobs and pods that are not up: quotas, mounts and pulls are reported nowhere else."""
        uids = {job["metadata"]["uid"] for job in observed.jobs.values()}
        uids |= {pod["metadata"]["uid"] for group in observed.pods.values() for pod in group}
        found: dict[str, str] = {}
        listing = await self.api.list_objects(EVENTS, observed.namespace, fields="type=Warning")
        for event in listing.items:
            reason = event.get("reason") or ""
            if (event.get("involvedObject") or {}).get("uid") in uids and reason in _TELLING:
                found[reason] = " ".join((event.get("message") or "").split())
        # The Event remains when the Secret has been made again.
        no_secret = f'"{names.secret_of(observed.name)}" not found'
        if memory.secret is False or any(no_secret in message for message in found.values()):
            await self._look_for_secret(observed, memory)
        warnings = tuple(f"{reason}: {message[:200]}" for reason, message in found.items())
        pulled: frozenset[tuple[str, str]] = frozenset()
        if any(map(pods.is_scheduled, itertools.chain.from_iterable(observed.pods.values()))):
            listing = await self.api.list_objects(EVENTS, observed.namespace, fields="reason=Pulling")
            pulled = frozenset(one for one in map(_pulled_by, listing.items) if one[0] in uids)
        if (warnings, pulled) != (memory.warnings, memory.pulled):
            memory.warnings, memory.pulled = warnings, pulled
            self.queue.add(key)

    # --- arguments of the pure parts

    def _build(self, cluster: MiniCluster, uid: str, size: int, known_hosts: str) -> list[Object]:
        return desired(
            cluster,
            uid=uid,
            images=self.options.images,
            keys=None,
            cluster_domain=self.options.cluster_domain,
            size=size,
            known_hosts=known_hosts,
        )

    def _secret_of(self, cluster: Object) -> Object:
        made = check(without_server_fields(cluster))
        return keys.secret(made, keys.fresh_keys(), uid=cluster["metadata"]["uid"])

    def _recall(self, uid: str) -> _Memory:
        return self._memory.setdefault(uid, _Memory())

    def _forget_absent(self) -> None:
        present = {one["metadata"]["uid"] for one in self.clusters}
        for uid in [uid for uid in self._memory if uid not in present]:
            self.links.drop(uid)
            del self._memory[uid]


class _Memory(Struct):
    """The operator's state of a MiniCluster in addition to its caches; all of it can be determined again."""

    key: Key = ("", "")
    keys: Keys | None = None
    secret: bool | None = None
    taken: tuple[str, ...] = ()
    try_taken_at: float = 0.0
    # When an object with a required name was found that is about to be deleted; 0 without one.
    leaves_since: float = 0.0
    refused: str = ""
    warnings: tuple[str, ...] = ()
    pulled: frozenset[tuple[str, str]] = frozenset()
    namespace_ends: bool = False
    deleting_since: float = 0.0
    # The last ended pod of index 0, by the uid of its Job.
    ended_leads: dict[str, Object] = {}
    status_at: float = 0.0


def _clusters_of(child: Object) -> list[Key]:
    """The MiniClusters that control a Job, or another object or pod of theirs."""
    meta = child["metadata"]
    return [
        (meta.get("namespace", ""), one["name"])
        for one in meta.get("ownerReferences") or ()
        if one.get("controller") and one.get("kind") == MINICLUSTERS.kind
    ]


def lead_address(observed: Observed) -> str:
    """The address of the lead's channel (tcp://HOST:PORT); "" if no lead of ours runs."""
    flux = (observed.cluster.get("spec") or {}).get("flux") or {}
    outside = ((flux.get("bursting") or {}).get("leadBroker") or {}).get("address")
    lead = observed.lead_pod
    if lead is None or not pods.is_running(lead) or outside or (flux.get("container") or {}).get("disable"):
        return ""
    host = (lead.get("status") or {}).get("podIP") or ""
    return f"tcp://{f'[{host}]' if ':' in host else host}:{CHANNEL_PORT}" if host else ""


def link_keys(secret: Object) -> Keys | None:
    """The keys of the channel in a MiniCluster's Secret; None if they are unreadable."""
    try:
        found = keys.keys_of(secret)
        return Keys(key_pair(found.channel)[0], *key_pair(found.channel_client))
    except ValueError as exc:
        log.warning("%s", exc)
        return None


def _pulled_by(event: Object) -> tuple[str, str]:
    """The container of a kubelet's Event about an image: its pod's uid, and its name."""
    about = event.get("involvedObject") or {}
    # The path is spec.containers{NAME} or spec.initContainers{NAME}.
    return about.get("uid") or "", (about.get("fieldPath") or "").partition("{")[2].rstrip("}")


def _namespace_ends(exc: ApiError) -> bool:
    """Whether an object was refused because its namespace is being deleted."""
    return any(one.get("reason") == "NamespaceTerminating" for one in exc.details.get("causes") or ())


# Reasons of Events that explain why pods do not come up, where the pods' status does not.
_TELLING = ("FailedCreate", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedToCreateEndpoint")


def _is_urgent(before: Object, after: Object) -> bool:
    """Whether a status must be written at once: it differs in more than counts and texts."""
    if any(before.get(key) != after.get(key) for key in ("phase", "exitCode", "size", "observedGeneration")):
        return True
    statuses = [{one["type"]: one["status"] for one in each.get("conditions") or ()} for each in (before, after)]
    return statuses[0] != statuses[1]


def _where(key: Key) -> Object:
    return {"namespace": key[0], "minicluster": key[1]}


def _trim(item: Object) -> Object:
    """An object without fields that the operator never reads, as hundreds of MiniClusters are kept in memory."""
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    if _LAST_APPLIED in meta.get("annotations", ()):
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**item, "metadata": meta}


def _trim_job(job: Object) -> Object:
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key in _JOB_SPEC}
    return {"metadata": _trim(job)["metadata"], "spec": spec, "status": job.get("status") or {}}


def _trim_config_map(item: Object) -> Object:
    return {"metadata": _trim(item)["metadata"], TRIMMED: content_of(item), HOSTS: hosts_of(item)}


# kubectl's copy of the applied document.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_JOB_SPEC = ("parallelism", "completions", "suspend", "activeDeadlineSeconds", "backoffLimit")
_POD_META = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "labels", "creationTimestamp")


def _trim_pod(pod: Object) -> Object:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    kept = (*_POD_META, "deletionTimestamp")
    parts = ("phase", "reason", "message", "conditions", "podIP", "initContainerStatuses", "containerStatuses")
    return {
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"nodeName": spec.get("nodeName", "")},
        "status": {key: status[key] for key in parts if key in status},
    }


def _declare(metrics: Metrics, operator: Operator) -> None:
    metrics.counter("headrace_operator_reconciles_total", "Looks at MiniClusters.")
    metrics.counter("headrace_operator_errors_total", "Looks that failed and are repeated.")
    metrics.histogram("headrace_operator_reconcile_seconds", "Time of a look without its requests.")
    metrics.gauge(
        "headrace_operator_queue_length", "MiniClusters that wait for a look.", lambda: {(): len(operator.queue)}
    )

    def phases() -> Mapping[tuple[str, ...], float]:
        counted: dict[tuple[str, ...], float] = {}
        for one in operator.clusters:
            phase = ((one.get("status") or {}).get("phase") or "Unknown",)
            counted[phase] = counted.get(phase, 0) + 1
        return counted

    metrics.gauge(
        "headrace_operator_leads_connected", "Leads that are connected.", lambda: {(): operator.links.connected()}
    )
    metrics.gauge("headrace_miniclusters", "MiniClusters by phase.", phases, ("phase",))
