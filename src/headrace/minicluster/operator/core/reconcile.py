"""One reconcile of a MiniCluster: the actions that its observed state requires.

Pure; time is an argument. Reconciliation is level-triggered: the result depends only on the observed state, so a crash
between two actions does no harm. The operator creates objects and never adopts them. If another owner has an object of
the required name, the status reports it. Only objects whose controller is this MiniCluster (by uid) are changed or
deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from msgspec import Struct

from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects.conditions import condition, has_ended, job_end
from headrace.k8s.objects.kinds import JOBS, MANAGED_BY_US, MINICLUSTERS, PODS, SERVICES, Kind
from headrace.k8s.objects.timestamps import seconds_of, text_of
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.steps import Apply, Create, Delete, Patch

from ...api.fields import API_VERSION, KIND, InvalidMiniCluster, MiniCluster
from ...api.plan import hosts_outside, outside_lead
from ...api.pod_plan import PLAN_FILE
from ...api.validate import check
from .. import names
from ..actions import Actions, LeadRequest, MakeSecret, Step
from ..autoscaler import wanted_size
from ..names import RUNNING
from ..objects import (
    CONFIG,
    CONTENT,
    FORMER_FAILURES,
    GROUP_FAILED,
    KINDS,
    RECREATES,
    SPEC,
    START_TIMEOUT,
    SUSPENDED_BY_US,
    annotated,
    annotations_of,
)
from . import pods
from .changes import configuration_fingerprint, content_fingerprint, hosts_of, recreating_fingerprint, spec_fingerprint
from .conditions import View
from .job_end import failed_pod
from .observed import Object, Observed
from .progress import number, pod_failures, ran_in_full, shortage
from .status import events_of, status_of

# SAVE_TIMEOUT: seconds a deletion waits for the instance to save its queue. A suspension retries a failed save after
# the same time. SAVE_RETRY: seconds after which a deletion retries a failed save.
SAVE_TIMEOUT, SAVE_RETRY = 60.0, 10.0
# If pods are missing, Events are first read this many seconds after the Job's start, and then at this interval.
WARNINGS_AFTER = 10.0
WARNINGS_EVERY = 60.0
# Backoff in seconds between the loss of a lead and the restart of all pods: doubled with each pod failure, up to the
# longest. Kubernetes itself waits RESTART_AFTER before it replaces a pod.
RESTART_AFTER, LONGEST_RESTART = 10.0, 360.0
# Seconds between two reads of Events while an image is being pulled: the kubelet reports pulls and starts only there.
PULLING_EVERY = 10.0


class Settings(Struct, frozen=True):
    """Functions that `reconcile` calls.

    `build` returns the objects of a MiniCluster without its Secret, in the order of creation (`builders.desired`). Its
    arguments are the MiniCluster, its uid, the size of its own Job, and the hosts of its running instance ("" for
    none). `replaced_image` returns the image that our view replaces ("" for none).
    """

    build: Callable[[MiniCluster, str, int, str], list[Object]]
    replaced_image: Callable[[MiniCluster], str] = lambda cluster: ""


class _Work:
    """Collects the steps of one reconcile."""

    def __init__(self, observed: Observed, now: float) -> None:
        self.observed = observed
        self.now = now
        self.steps: list[Step] = []
        self.requeue_times: list[float] = []
        self.waits_for = ""
        self.saving = False
        self.save_failed = False
        self.restart_at: float | None = None
        self.notices: list[Report] = []
        self.read_events = False

    def finish(self, cluster: MiniCluster | None, problems: tuple[str, ...] = (), status: bool = True) -> Actions:
        observed = self.observed
        fresh, events = None, tuple[Report, ...]()
        if status:
            view = View(
                cluster=cluster,
                problems=problems,
                waits_for=self.waits_for,
                saving=self.saving,
                save_failed=self.save_failed,
                restart_at=self.restart_at,
            )
            fresh = status_of(observed, view, self.now)
            before = observed.status
            events = tuple(events_of(before, fresh))
            if fresh == before:
                fresh = None
        return Actions(
            steps=tuple(self.steps),
            notices=tuple(self.notices),
            events=events,
            status=fresh,
            requeue_at=min(self.requeue_times) if self.requeue_times else None,
            read_events=self.read_events,
        )


def is_ours(cluster: Object) -> bool:
    """Whether this operator manages the MiniCluster (`spec.managedBy`)."""
    spec = cluster.get("spec")
    return not isinstance(spec, dict) or (spec.get("managedBy") or "") in ("", MANAGED_BY_US)


def reconcile(observed: Observed, settings: Settings, now: float) -> Actions:
    """The actions for a MiniCluster at time `now` (seconds since the epoch)."""
    work = _Work(observed, now)
    if not is_ours(observed.cluster):
        # We may have managed this MiniCluster before. Its present manager does not know our finalizer.
        _drop_finalizer(work)
        return work.finish(None, status=False)
    if observed.cluster["metadata"].get("deletionTimestamp"):
        _finalize(work)
        return work.finish(None, status=False)
    try:
        cluster, problems = check(without_server_fields(observed.cluster)), ()
    except InvalidMiniCluster as exc:
        # The new spec is invalid; a Job that runs with the previous one is not changed.
        return work.finish(None, tuple(str(one) for one in exc.problems))
    if observed.other_operator_until > now and observed.job is None:
        work.waits_for = "the Flux Operator is active in this cluster (it renews its Lease); waiting until it stops"
        work.requeue_times.append(observed.other_operator_until)
        return work.finish(cluster)
    if job_end(observed.job) or _was_over(observed):
        _clean_up(work, cluster)
    else:
        _reconcile_live(work, cluster, settings)
    return work.finish(cluster, problems)


def without_server_fields(cluster: Object) -> Object:
    """The document as a user would write it: validation rejects the status and the server's metadata."""
    meta = cluster["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    given = {key: value for key, value in cluster.items() if key != "status"}
    return {**given, "apiVersion": API_VERSION, "kind": KIND, "metadata": kept}


def _was_over(observed: Observed) -> bool:
    """Whether the MiniCluster has ended and its Job was deleted afterwards, by its TTL or by hand."""
    status = observed.status
    return observed.job is None and bool((status.get("times") or {}).get("finished"))


# --- running


def _reconcile_live(work: _Work, cluster: MiniCluster, settings: Settings) -> None:
    observed = work.observed
    job = observed.job
    if job and _is_of_former_spec(job, cluster):
        text = "a changed field needs a new Job: all pods are recreated"
        _recreate(work, Report("Normal", "Recreating", text), "the Job of the former spec is being deleted")
        return
    followers = _ended_with_another_lead(observed, cluster)
    if followers:
        _recreate_after_lead(work, followers)
        return
    if job is None and _waits_to_restart(work):
        return
    holders = _pods_with_keys(observed) if observed.secret is False else ""
    runs = job is not None and observed.status.get("phase") == RUNNING
    if holders and not runs:
        text = f"Secret {names.secret(cluster)} was deleted, and only pods {holders} have its keys: recreating all"
        _recreate(work, Report("Warning", "KeysLost", text), "the Job of the lost keys is being deleted")
        return
    _keep_finalizer(work, wanted=bool(_archive_of(cluster)) and _lead_runs(observed))
    size = number(job["spec"].get("parallelism")) if job else cluster.spec.size
    desired = settings.build(cluster, observed.uid, size or cluster.spec.size, _known_hosts(observed, cluster))
    _apply_objects(work, cluster, desired)
    image = "" if observed.cluster.get("status") else settings.replaced_image(cluster)
    if image:
        work.notices.append(Report("Normal", "ViewReplaced", f"Headrace's own view replaces {image}"))
    if job is None:
        return
    if job["metadata"].get("deletionTimestamp"):
        work.waits_for = "its Job is being deleted"
        restart_at = observed.status.get("restartAt")
        work.restart_at = seconds_of(restart_at) if restart_at else None
        return
    if _suspend(work, cluster, job):
        return
    if _ends_with_group(work, cluster, job):
        return
    _reload(work, cluster, job, desired)
    _resize(work, cluster, job, hosts_of(_config_map(desired)))
    _autoscale(work, cluster, job)
    _watch_start(work, cluster, job)


def _recreate(work: _Work, notice: Report, waits_for: str, propagation: str = "Background") -> None:
    """Delete the Jobs and their pods. A later reconcile creates new Jobs.

    With "Foreground" propagation, the new Jobs are created only when the pods are gone, too. The MiniCluster's own Job
    is deleted last, because its annotations decide whether the Jobs must be recreated: after a crash between two
    deletions, the next reconcile deletes the rest.
    """
    observed = work.observed
    jobs = sorted(observed.jobs.items(), key=lambda one: one[0] == observed.name)
    work.steps += [Delete(JOBS, name, one["metadata"]["uid"], propagation) for name, one in jobs]
    work.steps += _without(PODS, observed.pods.get("", ()))
    work.notices.append(notice)
    work.waits_for = waits_for


def _recreate_after_lead(work: _Work, followers: str) -> None:
    """Recreate all pods, because `followers` have ended with a former lead.

    The count of failures and the time of the restart are written to the status before the Jobs are deleted, because
    they are lost with the Jobs otherwise.
    """
    observed, failures = work.observed, pod_failures(work.observed)
    status = observed.status
    if status.get("restartAt") and status.get("podFailures", 0) == failures:
        work.restart_at = seconds_of(status["restartAt"])
        text = f"pods {followers} ended together with a former lead: all pods are recreated"
        # "Foreground": a new follower that connected to the former lead would end with it and complete its index.
        notice = Report("Warning", "LeadReplaced", text)
        _recreate(work, notice, "the Job of the former lead is being deleted", "Foreground")
    else:
        work.restart_at = work.now + restart_delay(failures)


def restart_delay(failures: int) -> float:
    """Seconds to wait before all pods are recreated, in addition to Kubernetes' own delay."""
    return min(RESTART_AFTER * 2.0 ** min(max(failures - 1, 0), 16), LONGEST_RESTART) - RESTART_AFTER


def _waits_to_restart(work: _Work) -> bool:
    """Whether the Jobs were deleted because a lead was lost, and the time of the restart has not come yet."""
    status = work.observed.status
    if not status.get("restartAt"):
        return False
    # The status keeps the time of the restart until the next Job exists; that Job has the count of failures.
    work.restart_at = seconds_of(status["restartAt"])
    if work.now >= work.restart_at:
        return False
    work.requeue_times.append(work.restart_at)
    failures = pod_failures(work.observed)
    text = f"the lead was lost, and pods have failed {failures} times so far"
    work.waits_for = f"{text}: all pods are recreated at {status['restartAt']}"
    return True


def _ended_with_another_lead(observed: Observed, cluster: MiniCluster) -> str:
    """The pods, as a hostlist, that had succeeded before the present lead began; "" for none.

    A Job never runs a completed index again, so the lead would wait for these pods forever. Followers with our view
    wait for a new lead, but followers with their image's own Flux cannot know that the lead was replaced.
    """
    lead = observed.lead_pod
    deleted = any(job["metadata"].get("deletionTimestamp") for job in observed.jobs.values())
    if lead is None or pods.is_terminating(lead) or pods.is_over(lead) or deleted or outside_lead(cluster):
        return ""
    ended = [pod for pod in observed.current_pods if pods.ended_before(pod, lead, observed.name)]
    return str(Hostlist(sorted(map(pods.host_of, ended))))


def _pods_with_keys(observed: Observed) -> str:
    """The pods, as a hostlist, that have mounted the keys of the Secret and have not ended; "" for none.

    Pods with different keys cannot connect, so a lost Secret is created with fresh keys only if there are no such pods.
    """
    jobs = [name for name, job in observed.jobs.items() if not job["metadata"].get("deletionTimestamp")]
    every = [pod for name in jobs for pod in pods.current(observed.pods.get(name, ()))]
    return str(Hostlist(sorted(pods.host_of(pod) for pod in every if pods.has_volumes(pod) and not pods.is_over(pod))))


def _apply_objects(work: _Work, cluster: MiniCluster, desired: list[Object]) -> None:
    """Create missing objects, and apply objects that differ from the spec."""
    observed = work.observed
    if observed.taken and work.now < observed.try_taken_at:
        work.requeue_times.append(observed.try_taken_at)
        return
    lost = observed.secret is False and not _pods_with_keys(observed)
    if lost or (observed.job is None and not observed.secret):
        work.steps.append(MakeSecret(names.secret(cluster)))
    present = {"ConfigMap": observed.config_maps, "Service": observed.services, "Job": observed.jobs}
    present["Pod"] = {one["metadata"]["name"]: one for one in observed.pods.get("", ())}
    spec_hash, recreates = spec_fingerprint(cluster), recreating_fingerprint(cluster)
    for body in desired:
        kind, name = body["kind"], body["metadata"]["name"]
        made = annotated(body, {SPEC: spec_hash, CONTENT: content_fingerprint(body)})
        if kind == "Job":
            own = {
                RECREATES: recreates,
                CONFIG: configuration_fingerprint(cluster),
                **({SUSPENDED_BY_US: "true"} if cluster.spec.suspend else {}),
            }
            made = annotated(made, own)
            if name == observed.name:
                made = _with_former_failures(made, pod_failures(observed))
        found = present[kind].get(name)
        if found is None:
            work.steps.append(Create(KINDS[kind], made))
        elif kind == "Pod":
            _replace_failed(work, found)
        elif kind == "Service" and _is_headless(found) != _is_headless(made):
            # The address of a Service cannot be changed.
            work.steps += [*_without(SERVICES, [found]), Create(KINDS[kind], made)]
        elif kind in ("ConfigMap", "Service") and _differs(found, made):
            work.steps.append(Apply(KINDS[kind], name, found["metadata"]["uid"], made))

    wanted = {body["metadata"]["name"] for body in desired if body["kind"] == "Service"}
    work.steps += _without(SERVICES, [one for name, one in observed.services.items() if name not in wanted])


def _replace_failed(work: _Work, pod: Object) -> None:
    """Delete the services pod if it has failed, for example after an eviction.

    No Job replaces this pod. The next reconcile creates it once the failed pod is gone.
    """
    meta, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") != "Failed" or meta.get("deletionTimestamp"):
        return
    # The delay prevents a tight loop if a node rejects each new pod at once.
    due = seconds_of(meta["creationTimestamp"]) + RESTART_AFTER
    if work.now < due:
        work.requeue_times.append(due)
        return
    why = status.get("reason") or status.get("message") or "a container failed"
    text = f"pod {meta['name']} of the services has failed ({why}): it is recreated"
    work.notices.append(Report("Warning", "ServicesFailed", text))
    work.steps += _without(PODS, [pod])


def _without(kind: Kind, items: Iterable[Object]) -> list[Step]:
    """Deletions of those `items` that are not being deleted yet."""
    metas = [one["metadata"] for one in items]
    return [Delete(kind, meta["name"], meta["uid"]) for meta in metas if not meta.get("deletionTimestamp")]


def _is_headless(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("clusterIP") == "None")


def _differs(found: Object, made: Object) -> bool:
    """Whether an object was made from another spec, or was changed afterwards.

    An object that another version of the operator made from the same spec is kept.
    """
    annotations = annotations_of(found)
    if annotations.get(SPEC) != made["metadata"]["annotations"][SPEC]:
        return True
    return content_fingerprint(found) != annotations.get(CONTENT)


def _with_former_failures(job: Object, failures: int) -> Object:
    """A new Job whose backoffLimit is reduced by the pod failures of former Jobs."""
    if not failures:
        return job
    remaining = max(job["spec"]["backoffLimit"] - failures, 0)
    return {**annotated(job, {FORMER_FAILURES: str(failures)}), "spec": {**job["spec"], "backoffLimit": remaining}}


def _is_of_former_spec(job: Object, cluster: MiniCluster) -> bool:
    if job["metadata"].get("deletionTimestamp"):
        return False
    annotations = annotations_of(job)
    if not _has_channel(cluster) and annotations.get(CONFIG) not in (None, configuration_fingerprint(cluster)):
        # Without a channel, the operator cannot make the brokers reload their configuration.
        return True
    return annotations.get(RECREATES) not in (None, recreating_fingerprint(cluster))


# --- suspension


def _suspend(work: _Work, cluster: MiniCluster, job: Object) -> bool:
    """Suspend or resume the Jobs; return whether the MiniCluster is suspended or about to be."""
    observed = work.observed
    if cluster.spec.suspend:
        if not job["spec"].get("suspend") and _saved(work, cluster, _suspend_asked(work), gives_up=False):
            active = _active_jobs(observed)
            if active and not _archive_of(cluster):
                text = f"{active} queued or running jobs are lost, because spec.archive.path is not set"
                work.notices.append(Report("Warning", "JobsLost", text))
            body = {"metadata": {"annotations": {SUSPENDED_BY_US: "true"}}, "spec": {"suspend": True}}
            work.steps += _patch_jobs(observed, body)
            work.steps += _without(PODS, observed.pods.get("", ()))
        return True
    if not job["spec"].get("suspend"):
        lead = observed.lead
        if lead and lead.saved and lead.state == "running":
            # The user withdrew the suspension after the queue was saved.
            work.steps.append(LeadRequest({"op": "go_on"}))
        return False
    if SUSPENDED_BY_US in annotations_of(job):
        body = {"metadata": {"annotations": {SUSPENDED_BY_US: None}}, "spec": {"suspend": False}}
        work.steps += _patch_jobs(observed, body)
    return True


def _patch_jobs(observed: Observed, body: Object) -> list[Step]:
    return [
        Patch(JOBS, name, one["metadata"]["uid"], body)
        for name, one in observed.jobs.items()
        if not one["metadata"].get("deletionTimestamp") and not has_ended(JOBS, one)
    ]


def _suspend_asked(work: _Work) -> float:
    """When the suspension was first seen: the transition time of the condition Saving, if it is True."""
    saving = condition(work.observed.status, "Saving")
    return seconds_of(saving["lastTransitionTime"]) if saving.get("status") == "True" else work.now


def _saved(work: _Work, cluster: MiniCluster, since: float, gives_up: bool = True) -> bool:
    """Whether the queue is saved or need not be. If not, ask the lead to save it, and retry a failed save.

    With `gives_up` (deletion), stop after SAVE_TIMEOUT. A suspension never gives up: its user expects the queue back.
    """
    observed, lead = work.observed, work.observed.lead
    path = _archive_of(cluster)
    if not path or not _lead_runs(observed) or (lead and lead.saved_at >= since):
        return True
    # The error of an earlier save for a suspension does not delay the save for a deletion.
    error = lead.save_error if lead and not (gives_up and lead.save_failed < since) else ""
    if gives_up and work.now >= since + SAVE_TIMEOUT:
        why = f"could not be saved: {error}" if error else f"was not saved within {SAVE_TIMEOUT:.0f} s"
        active = _active_jobs(observed)
        lost = f"; {active} queued or running jobs are lost" if active else ""
        work.notices.append(Report("Warning", "QueueLost", f"the queue {why}{lost}"))
        return True
    if lead:
        retry_after = SAVE_RETRY if gives_up else SAVE_TIMEOUT
        due = lead.save_failed + retry_after if error else work.now
        if work.now >= due:
            work.steps.append(LeadRequest({"op": "save", "path": path}))
            due = work.now + retry_after
        work.requeue_times.append(due)
    if gives_up:
        work.requeue_times.append(since + SAVE_TIMEOUT)
    work.saving, work.save_failed = True, bool(error)
    work.waits_for = f"saving the queue to {path}{'' if lead else ': there is no connection to the lead'}"
    if error:
        work.waits_for = f"the queue cannot be saved to {path}, so it is not suspended: {error}"
    return False


def _lead_runs(observed: Observed) -> bool:
    """Whether an instance runs that can be saved.

    Its lead reports this some seconds before its pod becomes ready.
    """
    lead, pod = observed.lead, observed.lead_pod
    says_so = lead is not None and lead.state == "running"
    return pod is not None and (pods.is_ready(pod) or (says_so and pods.is_running(pod)))


def _archive_of(cluster: MiniCluster) -> str:
    """The path to which the queue is saved; "" if it is not saved, as without a channel to the lead."""
    return cluster.spec.archive.path if cluster.spec.archive and _has_channel(cluster) else ""


def _has_channel(cluster: MiniCluster) -> bool:
    """Whether the lead has a channel.

    A lead with its image's own Flux, or outside this MiniCluster, has none.
    """
    view = cluster.flux.container
    return outside_lead(cluster) is None and not (view is not None and view.disable)


def _active_jobs(observed: Observed) -> int:
    jobs = observed.lead.jobs if observed.lead else {}
    return sum(count for state, count in jobs.items() if state != "inactive")


# --- size


def _known_hosts(observed: Observed, cluster: MiniCluster) -> str:
    """The hosts of the running instance, as a hostlist by rank; they keep their ranks when pods are added."""
    config_map = observed.config_maps.get(names.config_map(cluster))
    if config_map is None or observed.job is None or observed.job["metadata"].get("deletionTimestamp"):
        return ""
    return hosts_of(config_map)


def _config_map(desired: list[Object]) -> Object:
    return next(one for one in desired if one["kind"] == "ConfigMap")


def _resize(work: _Work, cluster: MiniCluster, job: Object, hosts: str) -> None:
    """Resize each Job: grow at once, shrink when the pods to be deleted run no jobs.

    `hosts` is the hostlist of the instance by rank, including new hosts.
    """
    observed = work.observed
    _resize_job(work, cluster, job, "", cluster.spec.size, hosts)
    for group in cluster.spec.groups:
        other = observed.jobs.get(names.group_job(cluster, group))
        if other and not job_end(other) and not other["metadata"].get("deletionTimestamp"):
            _resize_job(work, cluster, other, group.name, group.size, hosts)


def _resize_job(work: _Work, cluster: MiniCluster, job: Object, group: str, size: int, hosts: str) -> None:
    """Resize one Job; `group` is "" for the MiniCluster's own pods.

    Every size is sent to the lead. The lead drains hosts beyond the size, undrains hosts within the size that it has
    drained before, and adds hosts that it does not know.
    """
    observed, name, lead = work.observed, job["metadata"]["name"], work.observed.lead
    have = number(job["spec"].get("parallelism"))
    done = lead is not None and lead.resized.get(group) == size
    if lead is not None and lead.state == "running" and not done:
        largest = max(size, cluster.spec.max_size)
        request = {"op": "resize", "size": size, "max_size": largest, "hosts": hosts}
        work.steps.append(LeadRequest({**request, "group": group} if group else request))
    runs = any(map(pods.is_running, observed.pods.get(name, ())))
    if size < have and runs and _has_channel(cluster) and not done:
        why = "the lead is connected, which drains them" if lead is None else "no job runs on them"
        work.waits_for = f"removing pods of {name} (from {have} to {size}) waits until {why}"
    elif size != have:
        body = {"spec": {"parallelism": size, "completions": size}}
        work.steps.append(Patch(JOBS, name, job["metadata"]["uid"], body))


def _reload(work: _Work, cluster: MiniCluster, job: Object, desired: list[Object]) -> None:
    """Make the brokers reload their configuration if it has changed since their Job was made."""
    lead, wanted = work.observed.lead, configuration_fingerprint(cluster)
    if annotations_of(job).get(CONFIG) in (None, wanted) or lead is None:
        return
    plan = json.loads(_config_map(desired)["data"][PLAN_FILE])
    if lead.config == plan["config"]:
        body = {"metadata": {"annotations": {CONFIG: wanted}}}
        work.steps.append(Patch(JOBS, work.observed.name, job["metadata"]["uid"], body))
        work.notices.append(Report("Normal", "Reloaded", "the brokers reloaded the changed spec.flux.brokerConfig"))
    elif lead.state == "running":
        work.steps.append(LeadRequest({"op": "reload", "config": plan["config"]}))


def _autoscale(work: _Work, cluster: MiniCluster, job: Object) -> None:
    """Write the size that the queue needs to spec.size, as an HPA does; the next reconcile applies it."""
    observed, policy = work.observed, cluster.spec.autoscale
    if policy is None or observed.lead is None or observed.lead.state != "running":
        return
    demand = observed.lead.demand_nodes
    # The pods of groups and the hosts of bursting are nodes of the instance, too.
    others = sum(group.size for group in cluster.spec.groups) + hosts_outside(cluster)
    size, next_check = wanted_size(
        cluster.spec.size, policy.min_size, max(cluster.spec.max_size, cluster.spec.size),
        max(demand - others, min(demand, 1)), observed.lead.idle_since, policy.idle_seconds, work.now,
    )  # fmt: skip
    if next_check is not None:
        work.requeue_times.append(next_check)
    if size != cluster.spec.size:
        work.steps.append(Patch(MINICLUSTERS, observed.name, observed.uid, {"spec": {"size": size}}))
        text = f"from {cluster.spec.size} to {size} pods: active jobs need {demand} node{'' if demand == 1 else 's'}"
        work.notices.append(Report("Normal", "Autoscaled", text))


# --- start, end, deletion


def _watch_start(work: _Work, cluster: MiniCluster, job: Object) -> None:
    """Fail the Jobs after `startTimeoutSeconds`, and read the Events that explain a slow start."""
    observed = work.observed
    began = (job.get("status") or {}).get("startTime")
    if not began:
        return
    if ran_in_full(observed):
        _watch_replaced(work)
        return
    since = seconds_of(began)
    elapsed = work.now - since
    if elapsed >= WARNINGS_AFTER:
        work.read_events = not shortage(observed) or bool(observed.warnings or observed.pulled)
        if work.read_events:
            work.requeue_times.append(work.now + (PULLING_EVERY if observed.pulled else WARNINGS_EVERY))
    else:
        work.requeue_times.append(since + WARNINGS_AFTER)
    limit = cluster.spec.start_timeout_seconds
    if limit is None:
        return
    if elapsed < limit:
        work.requeue_times.append(since + limit)
        return
    why = shortage(observed)
    text = f"not all pods ran within spec.startTimeoutSeconds ({limit}){f': {why}' if why else ''}"
    # A Job whose deadline has expired fails at once, and Kubernetes deletes its pods.
    body = {"metadata": {"annotations": {START_TIMEOUT: text}}, "spec": {"activeDeadlineSeconds": 1}}
    if START_TIMEOUT not in annotations_of(job):
        work.steps += _patch_jobs(observed, body)


def _watch_replaced(work: _Work) -> None:
    """Read the Events if a replaced pod does not start, because its Secret may be gone."""
    observed = work.observed
    every = [pod for group in observed.pods.values() for pod in group]
    since = [pods.scheduled_since(pod) for pod in every if pods.waits_for_volumes(pod)]
    warnings_due = min((seconds_of(one) + WARNINGS_AFTER for one in since if one), default=None)
    work.read_events = observed.secret is False or (warnings_due is not None and work.now >= warnings_due)
    if work.read_events:
        work.requeue_times.append(work.now + WARNINGS_EVERY)
    elif warnings_due is not None:
        work.requeue_times.append(warnings_due)


def _ends_with_group(work: _Work, cluster: MiniCluster, job: Object) -> bool:
    """Fail all Jobs and return True if a group's Job has failed.

    The lead would wait for the group's brokers forever.
    """
    observed = work.observed
    for group in cluster.spec.groups:
        name = names.group_job(cluster, group)
        end = job_end(observed.jobs.get(name))
        if end is not None and end.failed:
            _code, why = failed_pod(observed.pods.get(name, []), observed.name)
            text = f"group {group.name}: {why or end.message or end.reason}"
            body = {"metadata": {"annotations": {GROUP_FAILED: text}}, "spec": {"activeDeadlineSeconds": 1}}
            if GROUP_FAILED not in annotations_of(job):
                work.steps += _patch_jobs(observed, body)
            return True
    return False


def _clean_up(work: _Work, cluster: MiniCluster) -> None:
    """Remove the finalizer and the groups' Jobs after the end, and after its TTL the MiniCluster."""
    observed = work.observed
    _drop_finalizer(work)
    for name, job in observed.jobs.items():
        is_running_group = (
            name != observed.name and not has_ended(JOBS, job) and not job["metadata"].get("deletionTimestamp")
        )
        # A group's followers normally end with the lead. If they have not ended, their Job is deleted.
        if is_running_group and has_ended(JOBS, observed.job):
            work.steps.append(Delete(JOBS, name, job["metadata"]["uid"]))
    if observed.job is not None and not has_ended(JOBS, observed.job):
        return
    if not (observed.status.get("times") or {}).get("finished"):
        # The MiniCluster is deleted only after its status has reported the end, for clients that wait for it.
        return
    finished = _finished_at(observed, work.now)
    ttl = cluster.spec.ttl_seconds_after_finished
    if ttl is not None and work.now < finished + ttl:
        work.requeue_times.append(finished + ttl)
    if cluster.spec.cleanup or (ttl is not None and work.now >= finished + ttl):
        work.steps.append(Delete(MINICLUSTERS, observed.name, observed.uid))


def _finished_at(observed: Observed, now: float) -> float:
    times = observed.status.get("times") or {}
    end = job_end(observed.job)
    text = times.get("finished") or (end.time if end else "") or text_of(now)
    return seconds_of(text)


def _finalize(work: _Work) -> None:
    """Delete the MiniCluster: save the queue, then remove the finalizer.

    The garbage collector deletes its objects.
    """
    observed = work.observed
    if not _has_finalizer(observed.cluster):
        return
    try:
        cluster: MiniCluster | None = check(without_server_fields(observed.cluster))
    except InvalidMiniCluster:
        cluster = None
    # deletionTimestamp is not used: it comes from the API server's clock, and may be older than this operator.
    since = observed.deleting_since or work.now
    if cluster is None or job_end(observed.job) or observed.job is None or _saved(work, cluster, since):
        _drop_finalizer(work)


def _has_finalizer(cluster: Object) -> bool:
    return names.FINALIZER in (cluster["metadata"].get("finalizers") or ())


def _drop_finalizer(work: _Work) -> None:
    _keep_finalizer(work, wanted=False)


def _keep_finalizer(work: _Work, wanted: bool) -> None:
    """Set or remove our finalizer.

    It is set only while the instance can be saved, because nothing removes it if the operator is uninstalled.
    """
    cluster = work.observed.cluster
    if wanted != _has_finalizer(cluster):
        others = [one for one in cluster["metadata"].get("finalizers") or () if one != names.FINALIZER]
        _set_finalizers(work, [*others, *([names.FINALIZER] if wanted else [])])


def _set_finalizers(work: _Work, finalizers: list[str]) -> None:
    observed = work.observed
    # With resourceVersion, the patch fails if another finalizer was added in the meantime.
    body = {"metadata": {"finalizers": finalizers, "resourceVersion": observed.cluster["metadata"]["resourceVersion"]}}
    work.steps.append(Patch(MINICLUSTERS, observed.name, observed.uid, body))
