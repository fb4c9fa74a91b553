"""The controller of Jobs that are clusters: it observes them, decides (`reconcile`) and acts.

It runs in the same process as the controller of MiniClusters, and uses the same keys, channel and steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from headrace.k8s.objects.conditions import job_end
from headrace.k8s.objects.kinds import JOBS, JOBSETS, PODS, SECRETS, SERVICES, TRAINJOBS, Kind
from headrace.k8s.runtime.api import Api, ApiError, is_namespace_ending
from headrace.k8s.runtime.cache import Key, key_of, owner_of
from headrace.k8s.runtime.controller import TAKEN_RETRY, Controller, Shared, Watch, owners_of
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.watches import Selection
from headrace.k8s.runtime.writes import Taken
from headrace.minicluster.api.pod_plan import PodPlan
from headrace.minicluster.operator.actions import Executor
from headrace.minicluster.operator.core import pods
from headrace.minicluster.operator.keys import fresh_keys
from headrace.minicluster.operator.links import Keys, Links, address_of, link_keys

from ..read import trainjob
from ..read.cluster import LABEL_KEY, LABEL_VALUE
from ..read.field import Field, InvalidForeign
from ..read.job import Owner
from . import names, objects
from .reconcile import Actions, Observed, reconcile, refused

Object = dict[str, Any]

log = logging.getLogger("headrace.flux_jobs.operator")

# Seconds for which changes of followers' pods are collected, since each pod changes several times while it starts.
POD_GATHERING = 0.25
WORKERS = 4

_JOBS = Selection(JOBS, f"{LABEL_KEY}={LABEL_VALUE}")
_SERVICES = Selection(SERVICES, names.ID_LABEL)
_PODS = Selection(PODS, names.ID_LABEL, trim=pods.trimmed)


class _Memory(Struct):
    """What the operator knows about a Job in addition to the caches. All of it can be determined again."""

    key: Key
    secret: str = ""
    """The Secret's uid, "" until it is known."""
    plan: PodPlan | None = None
    keys: Keys | None = None
    offered: Object = {}
    """The data of the Secret that this operator has tried to create."""
    is_first: bool = False
    """True if this operator created the Secret, so no earlier operator has sent requests to the lead."""
    ended_lead: Object | None = None
    reported: set[Report] = set()
    """The Events that were reported about the present start."""
    start: str = ""
    """The uid of the lead's pod in the present start."""
    checked_names_of: str | None = None
    """The start for which the names of the pods were checked."""
    owner: Owner | None = None
    owner_known: bool = False
    """True if the owner was read, or there is no owner to read."""


class ForeignClusters:
    """The controller of one process; `domain` is the DNS domain of the Kubernetes cluster."""

    def __init__(self, shared: Shared, domain: str) -> None:
        self.api = shared.api
        self.links = Links(self._lead_changed)
        self._domain = domain
        self._memory: dict[str, _Memory] = {}
        self.pods = shared.watches.cache(_PODS)
        self.controller = Controller(
            shared, _JOBS, (_SERVICES,), lambda observed, now: reconcile(observed, domain, now),
            watches=(Watch(_PODS, self._concerned_by_pod),), observe=self._observe, carry_out=self._carry_out,
            forget=lambda key: self._forget_absent(), workers=WORKERS,
        )  # fmt: skip
        self.jobs = self.controller.objects
        self._executor = Executor(self.api, JOBS, self._seen, self.links.ask, self._secret_of)

    # --- changes, and the Jobs that they affect

    def _concerned_by_pod(self, pod: Object) -> Iterator[tuple[Key, float]]:
        for place in owners_of(pod, JOBS):
            job = self.jobs.get(*place)
            if job is None:
                continue
            leads = pods.index_of(pod) == 0
            if leads and pods.is_over(pod):
                # Kubernetes may delete the pod as soon as it has ended, and only the pod has the exit code.
                self._memory_of(job).ended_lead = pod
            yield place, 0.0 if leads else POD_GATHERING

    def _lead_changed(self, uid: str) -> None:
        memory = self._memory.get(uid)
        if memory is not None:
            self.controller.queue.add(memory.key)

    def _seen(self, kind: Kind, item: Object) -> None:
        """Put an object of a response into its cache before the watch reports it."""
        if kind is not SECRETS:
            self.controller.seen(kind, item)
            return
        memory = self._memory.get(owner_of(item))
        if memory is not None:
            memory.secret, memory.keys = item["metadata"]["uid"], link_keys(item)
            memory.is_first = memory.is_first or item.get("data") == memory.offered
            try:
                memory.plan = objects.plan_in(item)
            except ValueError as exc:
                log.warning("%s", exc)

    # --- one reconcile

    def _observe(self, job: Object, now: float) -> Observed | None:
        if job["metadata"].get("deletionTimestamp"):
            self.links.drop(job["metadata"]["uid"])
            return None
        memory, uid = self._memory_of(job), job["metadata"]["uid"]
        found = self.pods.owned_by(uid)
        if job_end(job) and memory.ended_lead and not any(pods.index_of(pod) == 0 for pod in found):
            found = [*found, memory.ended_lead]
        return Observed(
            job=job,
            pods=found,
            secret=memory.secret,
            is_first=memory.is_first,
            plan=memory.plan,
            has_service=bool(self.controller.owned[SERVICES.kind].owned_by(uid)),
            lead=self.links.lead(uid),
            owner=memory.owner,
            owner_known=memory.owner_known or not is_trained(job),
        )

    async def _carry_out(self, observed: Observed, actions: Actions, now: float) -> float | None:
        """Do what `reconcile` decided; returns the time of the next reconcile. Raises ApiError, Unreachable."""
        job, memory = observed.job, self._memory_of(observed.job)
        start = observed.lead_pod["metadata"].get("uid", "") if observed.lead_pod else ""
        if memory.start != start:
            memory.start, memory.reported = start, set()
        if actions.read_owner:
            await self._read_owner(observed, memory, now)
            return None
        if actions.plan is not None and not memory.secret:
            memory.plan = actions.plan
        # Events come before the steps, because the last step at the end of a cluster records that everything is done.
        for event in actions.events:
            await self._report(observed, memory, event, now)
        try:
            await self._executor.carry_out(job, actions.steps)
            if actions.plan is not None and memory.plan != actions.plan:
                # The Secret existed already, from a previous operator.
                self.controller.queue.add(memory.key)
        except Taken as exc:
            memory.plan = None
            await self._report(observed, memory, Report("Warning", "NameTaken", str(exc)), now)
            return now + TAKEN_RETRY
        except ApiError as exc:
            if is_namespace_ending(exc):
                return None
            raise
        if actions.check_names and memory.checked_names_of != memory.start:
            await self._check_names(observed, memory, now)
            memory.checked_names_of = memory.start
        self._link(observed, memory)
        return actions.requeue_at

    async def _report(self, observed: Observed, memory: _Memory, event: Report, now: float) -> None:
        """Write an Event once for each start of the pods, even if the operator changes."""
        if event not in memory.reported:
            await self.controller.record({**observed.job, "status": {"start": memory.start}}, event, now)
            memory.reported.add(event)

    async def _read_owner(self, observed: Observed, memory: _Memory, now: float) -> None:
        """Read the TrainJob of a Job, for the plan that the next reconcile makes.

        If the TrainJob cannot be a cluster, no plan is made.
        """
        try:
            memory.owner = await trainjob_of(self.api, observed.job)
        except InvalidForeign as exc:
            await self._report(observed, memory, refused(exc), now)
            return
        except ApiError as exc:
            if exc.status != 403:
                raise
            text = f"the numProcPerNode of its TrainJob is ignored: {exc}. Install the operator with --trainer"
            await self._report(observed, memory, Report("Warning", "OwnerNotRead", text), now)
        memory.owner_known = True
        self.controller.queue.add(memory.key)

    async def _check_names(self, observed: Observed, memory: _Memory, now: float) -> None:
        """Report if the Service of the Job's own subdomain does not exist: names of pods do not resolve then."""
        job = observed.job
        namespace = job["metadata"].get("namespace", "")
        subdomain = job["spec"]["template"]["spec"].get("subdomain", "")
        try:
            await self.api.get(SERVICES, namespace, subdomain)
        except ApiError as exc:
            if exc.status != 404:
                raise
            host = f"{job['metadata']['name']}-0.{subdomain}.{namespace}.svc.{self._domain}"
            text = f"{host} does not resolve: there is no Service {subdomain}, the subdomain of the pods"
            await self._report(observed, memory, Report("Warning", "NameNotResolved", text), now)

    def _link(self, observed: Observed, memory: _Memory) -> None:
        """Connect to the lead while it is running, and disconnect otherwise."""
        uid, lead = observed.job["metadata"]["uid"], observed.lead_pod
        runs = lead is not None and pods.is_running(lead) and not job_end(observed.job)
        address = address_of(lead) if runs and lead is not None else ""
        if not address:
            self.links.drop(uid)
        elif memory.keys is not None:
            self.links.connect(uid, address, memory.keys)

    def _secret_of(self, job: Object) -> Object:
        plan = self._memory_of(job).plan
        assert plan is not None
        found = objects.secret(job, fresh_keys(), plan)
        self._memory_of(job).offered = found["data"]
        return found

    def _memory_of(self, job: Object) -> _Memory:
        return self._memory.setdefault(job["metadata"]["uid"], _Memory(key_of(job)))

    def _forget_absent(self) -> None:
        present = {one["metadata"]["uid"] for one in self.jobs}
        for uid in [uid for uid in self._memory if uid not in present]:
            self.links.drop(uid)
            del self._memory[uid]


def is_trained(job: Object) -> bool:
    """True if a Job may be the training step of a TrainJob.

    The number of processes on each node is then in the TrainJob, because Kubeflow Trainer sets it in the pods only
    under a torch policy.
    """
    return trainjob.is_step(Field(job)["metadata"]) and any(owners_of(job, JOBSETS))


async def trainjob_of(api: Api, job: Object) -> Owner | None:
    """The TrainJob of a Job, which owns the JobSet that owns the Job.

    Returns None if there is none, or if it is being deleted together with the Job. Sources: API references of JobSet
    0.12 and Kubeflow Trainer 2.3. Raises ApiError, Unreachable, InvalidForeign.
    """
    found = job
    for kind in (JOBSETS, TRAINJOBS):
        place = next(owners_of(found, kind), None)
        if place is None:
            return None
        try:
            found = await api.get(kind, *place)
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise
    metadata = found["metadata"]
    return Owner(TRAINJOBS.kind, metadata["name"], metadata["namespace"], trainjob.processes_in(found, job))
