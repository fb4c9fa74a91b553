"""The operator: a controller (`runtime.controller`) of MiniClusters.

For each MiniCluster it observes the state, decides (`reconcile`) and acts (`Executor`). This file only connects these
steps; all decisions are in pure modules. When idle, the operator makes no requests except its watches and the renewal
of its Lease: it polls nothing, and a reconcile without changes writes nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct

from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.conditions import holds, job_end
from headrace.k8s.objects.kinds import CONFIG_MAPS, EVENTS, JOBS, LEASES, MINICLUSTERS, PODS, SECRETS, SERVICES, Kind
from headrace.k8s.runtime.api import ApiError, is_namespace_ending
from headrace.k8s.runtime.cache import Key, key_of, owner_of
from headrace.k8s.runtime.controller import TAKEN_RETRY, Controller, Shared, Watch, owners_of
from headrace.k8s.runtime.events import Report, where
from headrace.k8s.runtime.lease import seconds_fresh
from headrace.k8s.runtime.watches import Selection, without_managed_fields
from headrace.k8s.runtime.writes import Taken

from ..api.fields import MiniCluster
from ..api.validate import check
from . import keys, names
from .actions import Actions, Executor
from .builders import Images, desired, view_image
from .core import pods
from .core.changes import HOSTS, TRIMMED, content_fingerprint, hosts_of
from .core.observed import Observed
from .core.reconcile import Settings, is_ours, reconcile, without_server_fields
from .links import Keys, Links, address_of, link_keys
from .names import OTHER_LEASE, OTHER_NAMESPACE

Object = dict[str, Any]

log = logging.getLogger("headrace.minicluster.operator.controller")

# Seconds between two writes of a status that differs only in counts and texts.
STATUS_INTERVAL = 2.0
# Seconds for which changes of followers' pods are collected before a reconcile: a starting pod changes several times.
POD_GATHERING = 0.25
# Seconds between retries while an object that has a required name is being deleted, as after `kubectl delete` and
# `apply`.
TEMPORARY_RETRY = 1.0
WORKERS = 8


class Options(Struct, frozen=True, kw_only=True):
    """The operator's options. If `namespaces` is empty, it manages the MiniClusters of all namespaces.

    The Lease of the Flux Operator is looked for in `namespaces` and in `flux_operator_namespace` ("": in no other
    namespace), or in all namespaces if `namespaces` is empty. With `metrics_api`, the operator serves the leads'
    metrics to autoscalers.
    """

    namespaces: tuple[str, ...] = ()
    images: Images = Images()
    cluster_domain: str = "cluster.local"
    flux_operator_namespace: str = OTHER_NAMESPACE
    metrics_api: bool = False


class Operator:
    """The controller of MiniClusters of one process."""

    def __init__(self, shared: Shared, options: Options) -> None:
        self.api = shared.api
        self.options = options
        self.links = Links(self._lead_changed)
        self._settings = Settings(
            build=self._build, replaced_image=lambda cluster: view_image(cluster, options.images)[1]
        )
        self._memory: dict[str, _Memory] = {}
        # Services of other programs that serve the metrics instead of this operator, by the name of the APIService.
        self._metrics_elsewhere: dict[str, str] = {}
        # Why requests for metrics are refused; "" while they are served.
        self._metrics_unanswered = ""
        self.pods = shared.watches.cache(_PODS)
        self.leases = shared.watches.cache(_OTHER_LEASES)
        self.controller = Controller(
            shared, Selection(MINICLUSTERS), (_JOBS, _CONFIG_MAPS, _SERVICES),
            lambda observed, now: reconcile(observed, self._settings, now),
            watches=(Watch(_PODS, self._concerned_by_pod), *self._watches_of_lease()),
            observe=self._observe, carry_out=self._carry_out, forget=lambda key: self._forget_absent(), workers=WORKERS,
        )  # fmt: skip
        self.clusters = self.controller.objects
        self.jobs, self.config_maps, self.services = (
            self.controller.owned[kind.kind] for kind in (JOBS, CONFIG_MAPS, SERVICES)
        )
        self._executor = Executor(self.api, MINICLUSTERS, self._seen, self.links.ask, self._secret_of)
        _declare(shared.metrics, self)

    # --- changes of other objects, and the MiniClusters to reconcile

    def _watches_of_lease(self) -> list[Watch]:
        watched, elsewhere = self.options.namespaces, self.options.flux_operator_namespace
        found = [Watch(_OTHER_LEASES, self._concerned_by_lease)]
        if watched and elsewhere and elsewhere not in watched:
            without = "MiniClusters do not wait for the Flux Operator there"
            found.append(Watch(_OTHER_LEASES, self._concerned_by_lease, (elsewhere,), without))
        return found

    def _concerned_by_pod(self, pod: Object) -> Iterator[tuple[Key, float]]:
        keys = list(owners_of(pod, MINICLUSTERS))
        for place in owners_of(pod, JOBS):
            job = self.jobs.get(*place)
            if job is not None:
                keys += owners_of(job, MINICLUSTERS)
                if pods.index_of(pod) == 0 and pods.is_over(pod):
                    self._memory_of(owner_of(job)).ended_leads[owner_of(pod)] = pod
        for key in keys:
            yield key, 0.0 if pods.index_of(pod) == 0 else POD_GATHERING

    def _concerned_by_lease(self, lease: Object) -> Iterator[tuple[Key, float]]:
        """The MiniClusters to reconcile after a change of the other operator's Lease.

        A renewal needs no reconcile, and a reconcile is already scheduled for the expiry. If the other operator has
        released its Lease, the waiting MiniClusters are reconciled at once.
        """
        is_free = self._other_operator_seconds(time.time()) <= 0
        for cluster in self.clusters:
            status = cluster.get("status") or {}
            if not status.get("phase") or (is_free and holds(status, "StandingBack")):
                yield key_of(cluster), 0.0

    def _other_operator_seconds(self, now: float) -> float:
        """The seconds from `now` for which the Flux Operator's Lease is held; 0 or less if it is not."""
        moment = datetime.fromtimestamp(now, timezone.utc)
        return max((seconds_fresh(lease, moment) for lease in self.leases), default=0.0)

    def _lead_changed(self, uid: str) -> None:
        memory = self._memory.get(uid)
        if memory is not None:
            self.controller.queue.add(memory.key)

    def metrics_elsewhere(self, name: str, owner: str) -> None:
        """Report in all MiniClusters which other program's Service has the APIService `name` ("" for none)."""
        if self._metrics_elsewhere.get(name, "") != owner:
            self._metrics_elsewhere[name] = owner
            self._reconcile_all()

    def metrics_unanswered(self, why: str) -> None:
        """Report in all MiniClusters why requests for metrics are refused ("" if they are served)."""
        if self._metrics_unanswered != why:
            self._metrics_unanswered = why
            self._reconcile_all()

    def _reconcile_all(self) -> None:
        for cluster in self.clusters:
            self.controller.queue.add(key_of(cluster))

    def _seen(self, kind: Kind, item: Object) -> None:
        """Put an object of a response into its cache before the watch reports it."""
        if kind is SECRETS:
            memory = self._memory_of(owner_of(item))
            memory.secret, memory.keys = True, link_keys(item)
        elif kind is PODS:
            self.pods.put(item)
        else:
            self.controller.seen(kind, item)

    # --- one reconcile

    def _observe(self, cluster: Object, now: float) -> Observed | None:
        """The observed state of a MiniCluster; None if it needs no reconcile."""
        meta = cluster["metadata"]
        memory = self._memory_of(meta["uid"])
        memory.key = key_of(cluster)
        if not is_ours(cluster):
            self.links.drop(meta["uid"])
            if names.FINALIZER not in (meta.get("finalizers") or ()):
                return None
        if memory.namespace_ends and not meta.get("deletionTimestamp"):
            # The MiniCluster is being deleted with its namespace, or will be.
            return None
        return self.observe(cluster, now)

    async def _carry_out(self, observed: Observed, actions: Actions, now: float) -> float | None:
        """Write what `reconcile` decided; returns the time of the next reconcile.

        Raises ApiError, Unreachable.
        """
        cluster, memory = observed.cluster, self._memory_of(observed.uid)
        key = key_of(cluster)
        refused, memory.refused = memory.refused, ""
        try:
            for notice in actions.notices:
                await self.controller.record(cluster, notice, now)
            await self._executor.carry_out(cluster, actions.steps)
            if actions.steps:
                memory.taken, memory.temporary_since = (), 0.0
        except Taken as exc:
            memory.temporary_since = memory.temporary_since or now
            if exc.is_temporary and now < memory.temporary_since + TAKEN_RETRY:
                return now + TEMPORARY_RETRY
            known = exc.what in memory.taken
            memory.taken, memory.try_taken_at = (exc.what,), now + TAKEN_RETRY
            # The next reconcile writes the status and retries at `try_taken_at`.
            if not known:
                self.controller.queue.add(key)
            return now + TAKEN_RETRY
        except ApiError as exc:
            if is_namespace_ending(exc):
                memory.namespace_ends = True
                log.info("the namespace is being deleted", extra=where(MINICLUSTERS, key))
                return None
            # Temporary errors are only retried. A refusal is also reported in the status.
            if exc.status in (400, 403, 413, 422) and not refused:
                self.controller.queue.add(key)
            memory.refused = exc.message if exc.status in (400, 403, 413, 422) else ""
            await self._publish_status(cluster, self.observe(cluster, now), now)
            raise
        await self._publish(cluster, actions.events, actions.status, now)
        if is_ours(cluster):
            await self._link(observed, memory)
        if actions.read_events:
            await self._read_events(observed, memory, key)
        return actions.requeue_at

    async def _publish_status(self, cluster: Object, observed: Observed, now: float) -> None:
        """Write only the status, after the steps were refused."""
        actions = reconcile(observed, self._settings, now)
        await self._publish(cluster, actions.events, actions.status, now)

    def observe(self, cluster: Object, now: float) -> Observed:
        """The observed state of a MiniCluster."""
        uid = cluster["metadata"]["uid"]
        memory = self._memory_of(uid)
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
            channel_closed=self.links.closed(uid),
            metrics_elsewhere=", ".join(f"{name}: {by}" for name, by in sorted(self._metrics_elsewhere.items()) if by),
            metrics_unanswered=self._metrics_unanswered,
            other_operator_until=now + other if other > 0 else 0.0,
            warnings=memory.warnings,
            pulled=memory.pulled,
            deleting_since=memory.deleting_since,
        )

    def _pods_of(self, job: Object, memory: _Memory) -> list[Object]:
        """The pods of a Job.

        If the Job has ended, its lead pod is included from memory: Kubernetes may have deleted the pod as soon as it
        ended, and only the pod has the lead's exit code.
        """
        found, uid = self.pods.owned_by(job["metadata"]["uid"]), job["metadata"]["uid"]
        if job_end(job) and uid in memory.ended_leads and not any(pods.index_of(pod) == 0 for pod in found):
            found = [*found, memory.ended_leads[uid]]
        return found

    async def _publish(self, cluster: Object, events: tuple[Report, ...], status: Object | None, now: float) -> None:
        meta = cluster["metadata"]
        for event in events:
            await self.controller.record(cluster, event, now)
        if status is None:
            return
        memory = self._memory_of(meta["uid"])
        if not _is_urgent(cluster.get("status") or {}, status) and now < memory.status_at + STATUS_INTERVAL:
            self.controller.requeue(key_of(cluster), memory.status_at + STATUS_INTERVAL - now)
            return
        memory.status_at = now
        await self._executor.writes.publish(cluster, status)

    async def _link(self, observed: Observed, memory: _Memory) -> None:
        """Connect to the lead while it runs, and disconnect otherwise."""
        address = "" if job_end(observed.job) else lead_address(observed)
        if not address:
            self.links.drop(observed.uid)
        elif address != self.links.address(observed.uid):
            if memory.keys is None:
                await self._read_secret(observed, memory)
            if memory.keys is not None:
                self.links.connect(observed.uid, address, memory.keys)

    async def _read_secret(self, observed: Observed, memory: _Memory) -> None:
        """Check whether the Secret exists and belongs to the MiniCluster. Secrets are not watched."""
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
            self.controller.queue.add(memory.key)

    async def _read_events(self, observed: Observed, memory: _Memory, key: Key) -> None:
        """Read the Events of Jobs and pods: only they report problems with quotas, mounts and pulls."""
        uids = {job["metadata"]["uid"] for job in observed.jobs.values()}
        uids |= {pod["metadata"]["uid"] for group in observed.pods.values() for pod in group}
        found: dict[str, str] = {}
        listing = await self.api.list_objects(EVENTS, observed.namespace, fields="type=Warning")
        for event in listing.items:
            reason = event.get("reason") or ""
            if (event.get("involvedObject") or {}).get("uid") in uids and reason in _TELLING:
                found[reason] = " ".join((event.get("message") or "").split())
        # The Event does not disappear when the Secret is recreated, so the Secret itself is read.
        no_secret = f'"{names.secret_of(observed.name)}" not found'
        if memory.secret is False or any(no_secret in message for message in found.values()):
            await self._read_secret(observed, memory)
        warnings = tuple(f"{reason}: {message[:200]}" for reason, message in found.items())
        pulled: frozenset[tuple[str, str]] = frozenset()
        if any(map(pods.is_scheduled, itertools.chain.from_iterable(observed.pods.values()))):
            listing = await self.api.list_objects(EVENTS, observed.namespace, fields="reason=Pulling")
            pulled = frozenset(one for one in map(_pulled_by, listing.items) if one[0] in uids)
        if (warnings, pulled) != (memory.warnings, memory.pulled):
            memory.warnings, memory.pulled = warnings, pulled
            self.controller.queue.add(key)

    # --- callbacks of the pure modules

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

    def _memory_of(self, uid: str) -> _Memory:
        return self._memory.setdefault(uid, _Memory())

    def _forget_absent(self) -> None:
        present = {one["metadata"]["uid"] for one in self.clusters}
        for uid in [uid for uid in self._memory if uid not in present]:
            self.links.drop(uid)
            del self._memory[uid]


class _Memory(Struct):
    """What the operator remembers of a MiniCluster in addition to its caches.

    All of it can be determined again.
    """

    key: Key = ("", "")
    keys: Keys | None = None
    secret: bool | None = None
    taken: tuple[str, ...] = ()
    try_taken_at: float = 0.0
    # Since when an object that has a required name is being deleted; 0 if there is none.
    temporary_since: float = 0.0
    refused: str = ""
    warnings: tuple[str, ...] = ()
    pulled: frozenset[tuple[str, str]] = frozenset()
    namespace_ends: bool = False
    deleting_since: float = 0.0
    # The last ended pod of index 0, by the uid of its Job.
    ended_leads: dict[str, Object] = {}
    status_at: float = 0.0


def lead_address(observed: Observed) -> str:
    """The address of the lead's channel (tcp://HOST:PORT); "" if no lead with a channel runs."""
    flux = (observed.cluster.get("spec") or {}).get("flux") or {}
    outside = ((flux.get("bursting") or {}).get("leadBroker") or {}).get("address")
    lead = observed.lead_pod
    if lead is None or not pods.is_running(lead) or outside or (flux.get("container") or {}).get("disable"):
        return ""
    return address_of(lead)


def _pulled_by(event: Object) -> tuple[str, str]:
    """The container in a kubelet's Event about an image: the uid of its pod, and its name."""
    about = event.get("involvedObject") or {}
    # The path is spec.containers{NAME} or spec.initContainers{NAME}.
    return about.get("uid") or "", (about.get("fieldPath") or "").partition("{")[2].rstrip("}")


# Reasons of Events that explain why pods do not start if the pods' status does not.
_TELLING = ("FailedCreate", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedToCreateEndpoint")


def _is_urgent(before: Object, after: Object) -> bool:
    """Whether a status must be written at once, because it differs in more than counts and texts."""
    if any(before.get(key) != after.get(key) for key in ("phase", "exitCode", "size", "observedGeneration")):
        return True
    statuses = [{one["type"]: one["status"] for one in each.get("conditions") or ()} for each in (before, after)]
    return statuses[0] != statuses[1]


def _trim_job(job: Object) -> Object:
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key in _JOB_SPEC}
    return {"metadata": without_managed_fields(job)["metadata"], "spec": spec, "status": job.get("status") or {}}


def _trim_config_map(item: Object) -> Object:
    return {
        "metadata": without_managed_fields(item)["metadata"],
        TRIMMED: content_fingerprint(item),
        HOSTS: hosts_of(item),
    }


_JOB_SPEC = ("parallelism", "completions", "suspend", "activeDeadlineSeconds", "backoffLimit")
_OURS = f"{names.MANAGED_BY}={names.MANAGER}"
_JOBS = Selection(JOBS, _OURS, trim=_trim_job)
_CONFIG_MAPS = Selection(CONFIG_MAPS, _OURS, trim=_trim_config_map)
_SERVICES = Selection(SERVICES, _OURS)
_PODS = Selection(PODS, _OURS, trim=pods.trimmed)
# RBAC allows the operator to list and watch only the Lease of this name, which requires this field selector.
_OTHER_LEASES = Selection(LEASES, fields=f"metadata.name={OTHER_LEASE}")


def _declare(metrics: Metrics, operator: Operator) -> None:
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
