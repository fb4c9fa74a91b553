"""One reconcile of a Job that is a cluster: what the operator has to do. Pure; time is an argument.

The Job belongs to a user and is controlled by Kubernetes: the operator never changes its spec. Like all reconciles,
this one is level-triggered: the result depends only on what is observed, so an operator that replaces a killed one does
the rest.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from headrace.k8s.objects.conditions import has_ended, is_suspended, job_end
from headrace.k8s.objects.kinds import JOBS, SECRETS, SERVICES
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.steps import Create, Patch
from headrace.minicluster.api.pod_plan import PodPlan
from headrace.minicluster.operator.actions import LeadRequest, MakeSecret, Step
from headrace.minicluster.operator.core import pods
from headrace.minicluster.operator.core.observed import Lead
from headrace.minicluster.operator.objects import annotations_of

from ..read.cluster import LABEL_KEY, LABEL_VALUE
from ..read.field import InvalidForeign
from ..read.job import Owner
from . import names, objects
from .policy import id_of
from .status import end_of, late_at, progress

Object = dict[str, Any]


class Observed(Struct, frozen=True, kw_only=True):
    """The observed state of a Job that is a cluster."""

    job: Object
    # The Job's pods, including the last lead if the Job has ended.
    pods: list[Object] = []
    # The uid of the Secret, "" if it is not known whether the Secret exists; whether this operator created the Secret;
    # and the plan in it.
    secret: str = ""
    is_first: bool = False
    plan: PodPlan | None = None
    # Whether the Service for the pods' names exists.
    has_service: bool = False
    # None while there is no connection to the lead.
    lead: Lead | None = None
    # The TrainJob of the Job. If `owner_known` is False, the TrainJob must be read before the plan is made.
    owner: Owner | None = None
    owner_known: bool = True

    @property
    def lead_pod(self) -> Object | None:
        """The newest pod of index 0, which may have ended."""
        return next((pod for pod in pods.current(self.pods) if pods.index_of(pod) == 0), None)


class Actions(Struct, frozen=True, kw_only=True):
    """The actions for a Job that is a cluster.

    `plan` is the plan for a new Secret. `events` are written once for each lead. `requeue_at` is the time of the next
    reconcile if nothing changes (seconds since the epoch). With `check_names`, the caller checks whether the pods'
    names can resolve. With `read_owner`, it reads the TrainJob of the Job.
    """

    steps: tuple[Step, ...] = ()
    events: tuple[Report, ...] = ()
    plan: PodPlan | None = None
    requeue_at: float | None = None
    check_names: bool = False
    read_owner: bool = False


def reconcile(observed: Observed, domain: str, now: float) -> Actions:
    """The actions for a labelled Job at time `now`; `domain` is the DNS domain of the Kubernetes cluster."""
    job = observed.job
    if not id_of(job):
        if has_ended(JOBS, job):
            return Actions()
        text = (
            f"the label {LABEL_KEY}={LABEL_VALUE} has no effect: the operator's webhook did not see this Job when it "
            "was created. Delete the Job, and create it when the webhook answers"
        )
        return Actions(events=(Report("Warning", "NotACluster", text),))
    try:
        cluster = objects.cluster_of(job, objects.hosts_in(observed.plan) if observed.plan else 0, observed.owner)
    except InvalidForeign as exc:
        return Actions(events=(refused(exc),))
    end = end_of(job, observed.pods, cluster.container)
    if end is not None:
        if annotations_of(job).get(names.STATUS_ANNOTATION) == end.annotation():
            return Actions()
        patch = {"metadata": {"annotations": {names.STATUS_ANNOTATION: end.annotation()}}}
        step = Patch(JOBS, job["metadata"]["name"], job["metadata"]["uid"], patch)
        return Actions(steps=(step,), events=(end.report(),))
    if job_end(job):
        return Actions()
    if not observed.owner_known and cluster.options.procs_per_node is None:
        return Actions(read_owner=True)
    if observed.plan is None:
        plan = objects.plan(cluster, service=names.service(id_of(job)), domain=domain)
    else:
        # Only the size changes: a new version of the operator does not change a running cluster in any other way.
        plan = objects.resized(observed.plan, objects.parallelism(job))
    steps = [*_objects(observed, plan), *_resize(observed, plan)]
    made = plan if any(isinstance(step, MakeSecret) for step in steps) else None
    events, requeue_at, check_names = _progress(observed, plan, now)
    return Actions(steps=tuple(steps), events=events, plan=made, requeue_at=requeue_at, check_names=check_names)


def refused(exc: InvalidForeign) -> Report:
    """The Event about a Job that admission accepted but that cannot be a cluster."""
    return Report("Warning", "Invalid", "; ".join(str(one) for one in exc.problems))


def _objects(observed: Observed, plan: PodPlan) -> list[Step]:
    job, name = observed.job, names.secret(id_of(observed.job))
    steps: list[Step] = []
    if not observed.secret:
        # A suspended Job may be resumed with another size, and its first pods must get that size.
        if not is_suspended(job):
            steps.append(MakeSecret(name))
    elif observed.plan != plan:
        # For pods that start from now on: a lead must not wait for brokers that will not start.
        steps.append(Patch(SECRETS, name, observed.secret, objects.changed_plan(plan)))
    if objects.has_own_service(job) and not observed.has_service:
        steps.append(Create(SERVICES, objects.service(job)))
    return steps


def _resize(observed: Observed, plan: PodPlan) -> list[Step]:
    """The request to the lead to use the hosts of the present size: no leaving hosts, all new ones."""
    lead = observed.lead
    if lead is None or lead.state != "running" or lead.resized.get("") == plan.size:
        return []
    if observed.is_first and not lead.resized and plan.size == objects.hosts_in(plan):
        # The instance has started with all of its hosts.
        return []
    return [LeadRequest({"op": "resize", "size": plan.size})]


def _progress(observed: Observed, plan: PodPlan, now: float) -> tuple[tuple[Report, ...], float | None, bool]:
    """The Events, the time of the next reconcile, and whether to check the pods' names."""
    job, job_pods = observed.job, pods.current(observed.pods)
    events = list(progress(plan.size, job_pods, observed.lead, now))
    lead = observed.lead
    if lead is not None and lead.left and lead.resized.get("") == plan.size:
        text = f"scaled to {plan.size} pods while jobs ran on others: {', '.join(lead.left)}"
        events.append(Report("Warning", "JobsLost", text))
    wanted = objects.parallelism(job)
    if wanted > plan.size:
        text = f"it has {wanted} pods, but hosts for {plan.size}: the others wait; the option maxSize allows more hosts"
        events.append(Report("Warning", "ScaledBeyond", text))
    if is_suspended(job) or any(one.reason == "BrokersUp" for one in events):
        return tuple(events), None, False
    late = max(map(late_at, job_pods), default=0.0)
    if now < late:
        return tuple(events), late, False
    return tuple(events), None, len(job_pods) == plan.size and all(map(pods.is_running, job_pods))
