"""One look at a MiniCluster: what is to be done now, from what was observed. Pure; time is an argument.

Level-triggered: nothing depends on which change led here, and every answer is the same after a crash in the middle of
carrying out the last. Objects are created, never adopted: a name that is taken is reported, and only objects whose
controller is this MiniCluster's uid are changed or deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from ..minicluster.fields import API_VERSION, KIND, MANAGED_BY_US, MiniCluster
from ..minicluster.plan import hostlist
from ..minicluster.pod_plan import PLAN_FILE
from ..minicluster.problems import InvalidMiniCluster
from ..minicluster.validate import check
from ..spec.hostlist import Hostlist
from . import names, pods
from .actions import Actions, Apply, Create, Delete, MakeSecret, Patch, Report, Step, Tell
from .api import JOBS, KINDS, MINICLUSTERS, PODS, SERVICES, Kind
from .autoscale import wanted_size
from .fingerprint import configuration, content_of, recreating, whole
from .observed import Observed
from .status import START_TIMEOUT, View, is_over, job_end, ran_in_full, seconds_of, shortage, status_of, text_of
from .transitions import events_of

Object = dict[str, Any]

FINALIZER = "flux-framework.org/headrace-save"
# Annotations on our objects: the spec that an object was made from, its content, and (on a Job) the part of the spec
# whose change needs another Job, the brokers' configuration, and that the operator has suspended it.
SPEC = "flux-framework.org/headrace-spec"
CONTENT = "flux-framework.org/headrace-content"
RECREATES = "flux-framework.org/headrace-recreates"
CONFIG = "flux-framework.org/headrace-config"
SUSPENDED_BY_US = "flux-framework.org/headrace-suspended"

# Seconds for which a deletion or suspension waits until the instance is saved.
SAVE_TIMEOUT = 60.0
# Seconds after its Job's start from which a MiniCluster without all its pods has its Events read, and between readings.
WARNINGS_AFTER = 10.0
WARNINGS_EVERY = 60.0
# The same while an image is being pulled: after that the kubelet may pull another, or make the container.
PULLING_EVERY = 10.0


class Settings(Struct, frozen=True):
    """`build` gives the objects of a MiniCluster without its Secret, in order (`builders.desired`): arguments are the
    MiniCluster, its uid, and the size of its own Job. `stands_in` names the image that the view stands in for ("")."""

    build: Callable[[MiniCluster, str, int], list[Object]]
    stands_in: Callable[[MiniCluster], str] = lambda cluster: ""


class _Work:
    """Collects the steps of one look."""

    def __init__(self, observed: Observed, now: float) -> None:
        self.observed = observed
        self.now = now
        self.steps: list[Step] = []
        self.again: list[float] = []
        self.waits_for = ""
        self.saving = False
        self.notices: list[Report] = []
        self.look_for_warnings = False

    def finish(self, cluster: MiniCluster | None, problems: tuple[str, ...] = (), status: bool = True) -> Actions:
        observed = self.observed
        fresh, events = None, tuple[Report, ...]()
        if status:
            view = View(cluster=cluster, problems=problems, waits_for=self.waits_for, saving=self.saving)
            fresh = status_of(observed, view, self.now)
            before = observed.cluster.get("status") or {}
            events = tuple(events_of(before, fresh))
            if fresh == before:
                fresh = None
        return Actions(
            steps=tuple(self.steps),
            notices=tuple(self.notices),
            events=events,
            status=fresh,
            again_at=min(self.again) if self.again else None,
            look_for_warnings=self.look_for_warnings,
        )


def is_ours(cluster: Object) -> bool:
    """Whether this operator manages the MiniCluster (`spec.managedBy`)."""
    spec = cluster.get("spec")
    return not isinstance(spec, dict) or (spec.get("managedBy") or "") in ("", MANAGED_BY_US)


def reconcile(observed: Observed, settings: Settings, now: float) -> Actions:
    """What to do about a MiniCluster at time `now` (seconds since the epoch)."""
    if not is_ours(observed.cluster):
        return Actions()
    work = _Work(observed, now)
    if observed.cluster["metadata"].get("deletionTimestamp"):
        _leave(work)
        return work.finish(None, status=False)
    try:
        cluster, problems = check(without_server_fields(observed.cluster)), ()
    except InvalidMiniCluster as exc:
        # A live Job stays as it is: the rules broken are of the new spec.
        return work.finish(None, tuple(str(one) for one in exc.problems))
    if observed.other_operator_until > now and observed.job is None:
        work.waits_for = "the Go operator is active in this cluster (its Lease is fresh); waiting until that is gone"
        work.again.append(observed.other_operator_until)
        return work.finish(cluster)
    if job_end(observed.job) or _was_over(observed):
        _after_end(work, cluster)
    else:
        _keep_up(work, cluster, settings)
    return work.finish(cluster, problems)


def without_server_fields(cluster: Object) -> Object:
    """The document as a user would write it: validation knows nothing of status and of the API server's metadata."""
    meta = cluster["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    given = {key: value for key, value in cluster.items() if key != "status"}
    return {**given, "apiVersion": API_VERSION, "kind": KIND, "metadata": kept}


def _was_over(observed: Observed) -> bool:
    """Whether the MiniCluster has ended and its Job was deleted since, by its own TTL or by hand."""
    status = observed.cluster.get("status") or {}
    return observed.job is None and bool((status.get("times") or {}).get("finished"))


# --- while it lives


def _keep_up(work: _Work, cluster: MiniCluster, settings: Settings) -> None:
    observed = work.observed
    job = observed.job
    if job and _made_from_another(job, cluster):
        text = "a field changed that needs another Job: its pods start anew"
        _make_anew(work, Report("Normal", "Recreating", text), "the Job of the former spec is being deleted")
        return
    followers = _ended_with_another_lead(observed, cluster)
    if followers:
        text = f"pods {followers} have ended with a lead that was replaced: all pods start anew"
        _make_anew(work, Report("Warning", "LeadReplaced", text), "the Job of the former lead is being deleted")
        return
    if cluster.spec.archive and cluster.spec.archive.path and not _has_finalizer(observed.cluster):
        kept = [*(observed.cluster["metadata"].get("finalizers") or ()), FINALIZER]
        work.steps.append(Patch(MINICLUSTERS, observed.name, observed.uid, {"metadata": {"finalizers": kept}}))
    size = _number(job["spec"].get("parallelism")) if job else cluster.spec.size
    desired = settings.build(cluster, observed.uid, size or cluster.spec.size)
    _keep_objects(work, cluster, desired)
    image = "" if observed.cluster.get("status") else settings.stands_in(cluster)
    if image:
        work.notices.append(Report("Normal", "ViewReplaced", f"Headrace's own view stands in for {image}"))
    if job is None:
        return
    if job["metadata"].get("deletionTimestamp"):
        work.waits_for = "its Job is being deleted"
        return
    if _suspend(work, cluster, job):
        return
    _reload(work, cluster, job, desired)
    _resize(work, cluster, job)
    _autoscale(work, cluster, job)
    _watch_start(work, cluster, job)


def _make_anew(work: _Work, notice: Report, waits_for: str) -> None:
    """Delete the Jobs with their pods; others are made when they are gone."""
    observed = work.observed
    work.steps += [Delete(JOBS, name, one["metadata"]["uid"]) for name, one in observed.jobs.items()]
    work.steps += _without(PODS, observed.pods.get("", ()))
    work.notices.append(notice)
    work.waits_for = waits_for


def _ended_with_another_lead(observed: Observed, cluster: MiniCluster) -> str:
    """The pods, as a hostlist, that had ended with success when the lead that there is was made; "" without any.

    A Job never runs a completed index again, so such a lead would wait for them for ever. Followers of our own view
    wait for the next lead, but those of an image's own Flux cannot know why theirs has ended.
    """
    bursting = cluster.flux.bursting
    lead = next((pod for pod in pods.current(observed.own_pods) if pods.index_of(pod) == 0), None)
    deleted = any(job["metadata"].get("deletionTimestamp") for job in observed.jobs.values())
    if lead is None or pods.is_going(lead) or pods.is_over(lead) or deleted or (bursting and bursting.lead_broker):
        return ""
    every = [pod for name in observed.jobs for pod in pods.current(observed.pods.get(name, ()))]
    return str(Hostlist(sorted(pods.host_of(pod) for pod in every if pods.ended_before(pod, lead))))


def _keep_objects(work: _Work, cluster: MiniCluster, desired: list[Object]) -> None:
    """Create what is missing, and apply what the spec has changed or somebody else has."""
    observed = work.observed
    if observed.taken and work.now < observed.try_taken_at:
        work.again.append(observed.try_taken_at)
        return
    if observed.job is None and not observed.secret:
        work.steps.append(MakeSecret(names.secret(cluster)))
    present = {"ConfigMap": observed.config_maps, "Service": observed.services, "Job": observed.jobs}
    present["Pod"] = {one["metadata"]["name"]: one for one in observed.pods.get("", ())}
    spec_hash, recreates = whole(cluster), recreating(cluster)
    for body in desired:
        kind, name = body["kind"], body["metadata"]["name"]
        made = _annotated(body, {SPEC: spec_hash, CONTENT: content_of(body)})
        if kind == "Job":
            own = {
                RECREATES: recreates,
                CONFIG: configuration(cluster),
                **({SUSPENDED_BY_US: "true"} if cluster.spec.suspend else {}),
            }
            made = _annotated(made, own)
        found = present[kind].get(name)
        if found is None:
            work.steps.append(Create(KINDS[kind], made))
        elif kind == "Service" and _is_headless(found) != _is_headless(made):
            # An address cannot be changed.
            work.steps += [*_without(SERVICES, [found]), Create(KINDS[kind], made)]
        elif kind in ("ConfigMap", "Service") and _differs(found, made):
            work.steps.append(Apply(KINDS[kind], name, found["metadata"]["uid"], made))

    wanted = {body["metadata"]["name"] for body in desired if body["kind"] == "Service"}
    work.steps += _without(SERVICES, [one for name, one in observed.services.items() if name not in wanted])


def _without(kind: Kind, items: Iterable[Object]) -> list[Step]:
    """Deletions of objects, but for those that are being deleted."""
    metas = [one["metadata"] for one in items]
    return [Delete(kind, meta["name"], meta["uid"]) for meta in metas if not meta.get("deletionTimestamp")]


def _is_headless(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("clusterIP") == "None")


def _differs(found: Object, made: Object) -> bool:
    """Whether an object was made from another spec, or was changed since.

    An object that was made by another version of the operator from this spec stays as it is.
    """
    annotations = found["metadata"].get("annotations") or {}
    if annotations.get(SPEC) != made["metadata"]["annotations"][SPEC]:
        return True
    return content_of(found) != annotations.get(CONTENT)


def _annotated(body: Object, annotations: dict[str, str]) -> Object:
    meta = body["metadata"]
    return {**body, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations}}}


def _made_from_another(job: Object, cluster: MiniCluster) -> bool:
    recorded = (job["metadata"].get("annotations") or {}).get(RECREATES)
    return recorded is not None and recorded != recreating(cluster) and not job["metadata"].get("deletionTimestamp")


# --- suspension


def _suspend(work: _Work, cluster: MiniCluster, job: Object) -> bool:
    """Suspend or resume the Jobs; whether the MiniCluster is suspended, or about to be."""
    observed = work.observed
    annotations = job["metadata"].get("annotations") or {}
    if cluster.spec.suspend:
        if not job["spec"].get("suspend") and _saved(work, cluster, _suspend_asked(work)):
            active = _active_jobs(observed)
            if active and not (cluster.spec.archive and cluster.spec.archive.path):
                text = f"{active} jobs that are queued or running are lost: spec.archive.path is not set"
                work.notices.append(Report("Warning", "JobsLost", text))
            body = {"metadata": {"annotations": {SUSPENDED_BY_US: "true"}}, "spec": {"suspend": True}}
            work.steps += _patch_jobs(observed, body)
            work.steps += _without(PODS, observed.pods.get("", ()))
        return True
    if not job["spec"].get("suspend"):
        return False
    if SUSPENDED_BY_US in annotations:
        body = {"metadata": {"annotations": {SUSPENDED_BY_US: None}}, "spec": {"suspend": False}}
        work.steps += _patch_jobs(observed, body)
    return True


def _patch_jobs(observed: Observed, body: Object) -> list[Step]:
    return [
        Patch(JOBS, name, one["metadata"]["uid"], body)
        for name, one in observed.jobs.items()
        if not one["metadata"].get("deletionTimestamp") and not is_over(one)
    ]


def _suspend_asked(work: _Work) -> float:
    """Since when the suspension is wanted: the time is kept in the condition that says what is waited for."""
    for one in (work.observed.cluster.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Saving" and one.get("status") == "True":
            return seconds_of(one["lastTransitionTime"])
    return work.now


def _saved(work: _Work, cluster: MiniCluster, since: float) -> bool:
    """Whether nothing is left to be saved; asks the lead to save where something is."""
    observed = work.observed
    path = cluster.spec.archive.path if cluster.spec.archive else ""
    lead_runs = any(pods.index_of(pod) == 0 and pods.is_ready(pod) for pod in pods.current(observed.own_pods))
    if not path or not lead_runs or (observed.lead and observed.lead.saved):
        return True
    if observed.lead and observed.lead.save_error:
        work.notices.append(Report("Warning", "NotSaved", f"the queue could not be saved: {observed.lead.save_error}"))
        return True
    if work.now >= since + SAVE_TIMEOUT:
        work.notices.append(Report("Warning", "NotSaved", f"the queue was not saved within {SAVE_TIMEOUT:.0f} s"))
        return True
    if observed.lead:
        work.steps.append(Tell({"op": "save", "path": path}))
    work.waits_for = f"saving the queue to {path}"
    work.saving = True
    work.again.append(since + SAVE_TIMEOUT)
    return False


def _active_jobs(observed: Observed) -> int:
    jobs = observed.lead.jobs if observed.lead else {}
    return sum(count for state, count in jobs.items() if state != "inactive")


# --- size


def _resize(work: _Work, cluster: MiniCluster, job: Object) -> None:
    """Bring each Job to its size: growth at once, shrinking once nothing runs on the pods that go."""
    observed = work.observed
    _resize_job(work, cluster, job, "", cluster.spec.size)
    for group in cluster.spec.groups:
        other = observed.jobs.get(names.group_job(cluster, group))
        if other and not job_end(other) and not other["metadata"].get("deletionTimestamp"):
            _resize_job(work, cluster, other, group.name, group.size)


def _resize_job(work: _Work, cluster: MiniCluster, job: Object, group: str, size: int) -> None:
    """`group` is "" for the MiniCluster's own pods. The lead hears of every size: it drains hosts beyond it, lets those
    that it had drained take jobs again, and learns of hosts that it does not know."""
    observed, name, lead = work.observed, job["metadata"]["name"], work.observed.lead
    have = _number(job["spec"].get("parallelism"))
    done = lead is not None and lead.resized.get(group) == size
    if lead is not None and lead.state == "running" and not done:
        largest = max(size, cluster.spec.max_size)
        request = {"op": "resize", "size": size, "max_size": largest, "hosts": hostlist(cluster)}
        work.steps.append(Tell({**request, "group": group} if group else request))
    own_flux = bool(cluster.flux.container and cluster.flux.container.disable)
    runs = any(map(pods.is_running, observed.pods.get(name, ())))
    if size < have and runs and not own_flux and not done:
        why = "there is a connection to the lead, which drains" if lead is None else "no job runs on"
        work.waits_for = f"shrinking {name} from {have} to {size} waits until {why} the pods that go"
    elif size != have:
        body = {"spec": {"parallelism": size, "completions": size}}
        work.steps.append(Patch(JOBS, name, job["metadata"]["uid"], body))


def _reload(work: _Work, cluster: MiniCluster, job: Object, desired: list[Object]) -> None:
    """Have the brokers take a configuration that has changed since their Job was made."""
    lead, wanted = work.observed.lead, configuration(cluster)
    if (job["metadata"].get("annotations") or {}).get(CONFIG) in (None, wanted) or lead is None:
        return
    plan = json.loads(next(one for one in desired if one["kind"] == "ConfigMap")["data"][PLAN_FILE])
    if lead.config == plan["config"]:
        body = {"metadata": {"annotations": {CONFIG: wanted}}}
        work.steps.append(Patch(JOBS, work.observed.name, job["metadata"]["uid"], body))
    elif lead.state == "running":
        work.steps.append(Tell({"op": "reload", "config": plan["config"]}))


def _autoscale(work: _Work, cluster: MiniCluster, job: Object) -> None:
    """The queue-driven size: written to spec.size as an HPA would, and carried out at the next look."""
    observed, policy = work.observed, cluster.spec.autoscale
    if policy is None or observed.lead is None or observed.lead.state != "running":
        return
    size, again = wanted_size(
        cluster.spec.size, policy.min_size, max(cluster.spec.max_size, cluster.spec.size),
        observed.lead.demand_nodes, observed.lead.idle_since, policy.idle_seconds, work.now,
    )  # fmt: skip
    if again is not None:
        work.again.append(again)
    if size != cluster.spec.size:
        work.steps.append(Patch(MINICLUSTERS, observed.name, observed.uid, {"spec": {"size": size}}))
        demand = observed.lead.demand_nodes
        text = f"from {cluster.spec.size} to {size} pods: active jobs want {demand} node{'' if demand == 1 else 's'}"
        work.notices.append(Report("Normal", "Autoscaled", text))


# --- start, end, deletion


def _watch_start(work: _Work, cluster: MiniCluster, job: Object) -> None:
    """The time-out of a start, and the Events that say what a start lacks."""
    observed = work.observed
    began = (job.get("status") or {}).get("startTime")
    if not began or ran_in_full(observed):
        return
    since = seconds_of(began)
    elapsed = work.now - since
    if elapsed >= WARNINGS_AFTER:
        work.look_for_warnings = not shortage(observed) or bool(observed.warnings or observed.pulled)
        if work.look_for_warnings:
            work.again.append(work.now + (PULLING_EVERY if observed.pulled else WARNINGS_EVERY))
        if any(f'"{names.secret(cluster)}" not found' in one for one in observed.warnings):
            work.steps.append(MakeSecret(names.secret(cluster)))
    else:
        work.again.append(since + WARNINGS_AFTER)
    limit = cluster.spec.start_timeout_seconds
    if limit is None:
        return
    if elapsed < limit:
        work.again.append(since + limit)
        return
    why = shortage(observed)
    text = f"not all pods ran within spec.startTimeoutSeconds ({limit}){f': {why}' if why else ''}"
    # A Job whose deadline has passed fails at once, and its pods are let go.
    body = {"metadata": {"annotations": {START_TIMEOUT: text}}, "spec": {"activeDeadlineSeconds": 1}}
    if START_TIMEOUT not in (job["metadata"].get("annotations") or {}):
        work.steps += _patch_jobs(observed, body)


def _after_end(work: _Work, cluster: MiniCluster) -> None:
    """Let go of what the end leaves: finalizer, groups' Jobs, and the MiniCluster itself where it is to go."""
    observed = work.observed
    _drop_finalizer(work)
    for name, job in observed.jobs.items():
        left = name != observed.name and not is_over(job) and not job["metadata"].get("deletionTimestamp")
        # Followers of a group end with the lead; their Job is deleted where they have not.
        if left and is_over(observed.job):
            work.steps.append(Delete(JOBS, name, job["metadata"]["uid"]))
    if observed.job is not None and not is_over(observed.job):
        return
    if not ((observed.cluster.get("status") or {}).get("times") or {}).get("finished"):
        # The status tells of the end before the MiniCluster is deleted: a client that waits for the end sees it.
        return
    finished = _finished_at(observed, work.now)
    ttl = cluster.spec.ttl_seconds_after_finished
    if ttl is not None and work.now < finished + ttl:
        work.again.append(finished + ttl)
    if cluster.spec.cleanup or (ttl is not None and work.now >= finished + ttl):
        work.steps.append(Delete(MINICLUSTERS, observed.name, observed.uid))


def _finished_at(observed: Observed, now: float) -> float:
    times = (observed.cluster.get("status") or {}).get("times") or {}
    end = job_end(observed.job)
    text = times.get("finished") or (end.time if end else "") or text_of(now)
    return seconds_of(text)


def _leave(work: _Work) -> None:
    """The MiniCluster is being deleted: save what is to be saved, then let go. Children are the garbage collector's."""
    observed = work.observed
    if not _has_finalizer(observed.cluster):
        return
    try:
        cluster: MiniCluster | None = check(without_server_fields(observed.cluster))
    except InvalidMiniCluster:
        cluster = None
    asked = seconds_of(observed.cluster["metadata"]["deletionTimestamp"])
    if cluster is None or job_end(observed.job) or observed.job is None or _saved(work, cluster, asked):
        _drop_finalizer(work)


def _has_finalizer(cluster: Object) -> bool:
    return FINALIZER in (cluster["metadata"].get("finalizers") or ())


def _drop_finalizer(work: _Work) -> None:
    observed = work.observed
    if _has_finalizer(observed.cluster):
        left = [one for one in observed.cluster["metadata"]["finalizers"] if one != FINALIZER]
        # The version makes sure that no finalizer which somebody else has added meanwhile is lost.
        body = {"metadata": {"finalizers": left, "resourceVersion": observed.cluster["metadata"]["resourceVersion"]}}
        work.steps.append(Patch(MINICLUSTERS, observed.name, observed.uid, body))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
