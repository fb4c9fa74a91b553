"""Labelled Jobs for users' commands, in the form of a MiniCluster.

`job/NAME`, `jobset/NAME` and `trainjob/NAME` name a cluster by the object that the user created. A JobSet has the name
of its TrainJob, and labels its Jobs with its own name.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.k8s.objects.conditions import has_ended, is_suspended, job_end
from headrace.k8s.objects.kinds import EVENTS, JOBS
from headrace.k8s.runtime.api import Api, ApiError
from headrace.minicluster.client.clusters import NotFoundError
from headrace.minicluster.operator.names import FAILED, FINISHED, INVALID, RUNNING, STARTING, SUSPENDED

from ..operator import names
from ..operator.objects import parallelism
from ..operator.policy import id_of, original
from ..read.cluster import LABEL_KEY, LABEL_VALUE

Object = dict[str, Any]

KINDS = ("job", "jobset", "trainjob")
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"


def kind_and_name(text: str) -> tuple[str, str] | None:
    """The kind, one of KINDS, and the name in a text such as job/hello; None for a MiniCluster's name.

    Raises NotFoundError for any other text with a slash.
    """
    kind, slash, name = text.partition("/")
    if not slash:
        return None
    if kind not in KINDS or not name or "/" in name:
        others = " or ".join(f"{one}/NAME" for one in KINDS)
        raise NotFoundError(f"{text} does not name a cluster: use NAME for a MiniCluster, or {others}")
    return kind, name


def deletion(namespace: str, kind: str, name: str) -> str:
    """The message of `mini delete` for a cluster that is not a MiniCluster."""
    return f"{kind}/{name}: this command deletes only MiniClusters; use kubectl delete {kind} {name} -n {namespace}"


def resizing(namespace: str, kind: str, name: str, size: int) -> str:
    """The message of `mini scale` for a cluster that is not a MiniCluster."""
    text = f"{kind}/{name}: this command scales only MiniClusters"
    if kind != "job":
        return f"{text}; delete it, and create it with the size {size} in its file"
    if size < 1:
        patch = json.dumps({"spec": {"suspend": True}})
    else:
        patch = json.dumps({"spec": {"parallelism": size, "completions": size}})
    return f"{text}; kubectl patch job {name} -n {namespace} --type merge -p '{patch}'"


async def find(api: Api, namespace: str, kind: str, name: str) -> Object:
    """The Job that is the cluster of an object, in the form of a MiniCluster. Raises NotFoundError, ApiError."""
    if kind == "job":
        try:
            return await with_warning(api, as_minicluster(await api.get(JOBS, namespace, name)))
        except ApiError as exc:
            if exc.status != 404:
                raise
    else:
        found = (await api.list_objects(JOBS, namespace, f"{_JOBSET_NAME}={name},{names.ID_LABEL}")).items
        if found:
            # A JobSet that restarts creates its Jobs again.
            newest = max(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))
            return await with_warning(api, as_minicluster(newest))
    there = (await api.list_objects(JOBS, namespace, names.ID_LABEL)).items
    listed = ", ".join(f"job/{one['metadata']['name']}" for one in there) or "none"
    raise NotFoundError(f"no cluster {kind}/{name} in namespace {namespace} (existing: {listed})")


async def listed(api: Api, namespace: str) -> list[Object]:
    """The labelled Jobs of a namespace ("": of all), in the form of MiniClusters.

    Returns [] for a user who may not list Jobs. Raises ApiError.
    """
    try:
        found = (await api.list_objects(JOBS, namespace, f"{LABEL_KEY}={LABEL_VALUE}")).items
    except ApiError as exc:
        if exc.status != 403:
            raise
        return []
    return await _with_warnings(api, namespace, [as_minicluster(one) for one in found])


async def with_warning(api: Api, cluster: Object) -> Object:
    """A Job in the form of a MiniCluster. While it is starting, the last warning about it is its reason.

    Raises ApiError.
    """
    metadata = cluster["metadata"]
    return (await _with_warnings(api, metadata["namespace"], [cluster], f",involvedObject.uid={metadata['uid']}"))[0]


async def _with_warnings(api: Api, namespace: str, clusters: list[Object], fields: str = "") -> list[Object]:
    """Jobs with the warnings of the operator or of Kubernetes, such as that a policy rejects the pods.

    The warnings are missing for a user who may not list Events.
    """
    if all(one["status"]["phase"] != STARTING for one in clusters):
        return clusters
    wanted = f"involvedObject.kind={JOBS.kind},type=Warning{fields}"
    try:
        events = (await api.list_objects(EVENTS, namespace, fields=wanted)).items
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return clusters
    events.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    last = {one["involvedObject"].get("uid"): str(one.get("message") or "") for one in events}
    return [
        {**one, "status": {**one["status"], "reason": last[one["metadata"]["uid"]]}}
        if one["status"]["phase"] == STARTING and one["metadata"]["uid"] in last
        else one
        for one in clusters
    ]


def as_minicluster(job: Object) -> Object:
    """A Job in the form of a MiniCluster.

    It has a kind, metadata, the size, the name of the broker's container, and a status, which is derived from the Job's
    status and the operator's annotation.
    """
    meta, size = job["metadata"], parallelism(job)
    status = {**_status(job, size), "observedGeneration": meta.get("generation", 0)}
    spec = {"size": size, "container": _broker_container(job)}
    return {"kind": JOBS.kind, "metadata": meta, "spec": spec, "status": status}


def _status(job: Object, size: int) -> Object:
    status, reported, end = job.get("status") or {}, _reported_end(job), job_end(job)
    times = {"created": job["metadata"].get("creationTimestamp", "")}
    if reported and end and has_ended(JOBS, job):
        found: Object = {"phase": FAILED if end.failed else FINISHED, "ready": f"0/{size}"}
        found.update(reason=reported.get("reason", ""), times=reported.get("times") or times)
        return {**found, "exitCode": reported["exit"]} if "exit" in reported else found
    if not id_of(job):
        reason = "the operator's webhook did not see this Job when it was created"
        if (job["metadata"].get("labels") or {}).get(LABEL_KEY) != LABEL_VALUE:
            reason = f"an ordinary Job, without the label {LABEL_KEY}: {LABEL_VALUE}"
        return {"phase": INVALID, "ready": f"0/{size}", "reason": reason, "times": times}
    if is_suspended(job):
        return {"phase": SUSPENDED, "ready": f"0/{size}", "reason": "", "times": times}
    if end:
        how = f"it has {'failed' if end.failed else 'succeeded'}, and the operator has not reported the result yet"
        return {"phase": RUNNING, "ready": f"0/{size}", "reason": how, "times": times}
    # A pod without a readiness probe is ready as soon as it runs.
    ready = int(status.get("ready") or 0)
    phase = RUNNING if ready >= size else STARTING
    return {"phase": phase, "ready": f"{ready}/{size}", "reason": "", "times": times}


def _reported_end(job: Object) -> Object:
    """The end as the operator's annotation reports it; {} if there is no such annotation, or it is invalid."""
    text = (job["metadata"].get("annotations") or {}).get(names.STATUS_ANNOTATION, "")
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _broker_container(job: Object) -> str:
    """The name of the broker's container."""
    containers = job["spec"]["template"]["spec"].get("containers") or [{}]
    before = original(job)["spec"]["template"]["spec"].get("containers") or [{}]
    changed = [one for one, other in zip(containers, before) if one != other]
    return str((changed or containers)[0].get("name", ""))
