"""The objects that the operator creates for a Job that is a cluster, and the plan. Pure.

They are the Secret with plan and keys, and the Service. The Job owns both, so Kubernetes deletes them with it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from msgspec import structs

from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects.kinds import JOBS
from headrace.minicluster.api.plan import DEFAULT_OUTPUT, TOPOLOGY, hosts_of
from headrace.minicluster.api.pod_plan import PLAN_FILE, PodPlan, decode, encode
from headrace.minicluster.api.shell_text import Mode
from headrace.minicluster.operator.builders.services import headless
from headrace.minicluster.operator.keys import Keys, secret_of, texts
from headrace.minicluster.operator.names import MANAGED_BY, MANAGER
from headrace.minicluster.operator.objects import controlled_by

from ..read.cluster import OUR_MOUNTS, PROCS_VARIABLE, ForeignCluster
from ..read.field import Field
from ..read.job import Owner, read
from ..read.options import Exit, Run
from . import names
from .policy import id_of, original

Object = dict[str, Any]

# Brokers log only errors: users read the output of their command, and brokers warn of names that do not resolve yet.
_LOG_LEVEL = "3"


def cluster_of(job: Object, most: int, owner: Owner | None = None) -> ForeignCluster:
    """The cluster of a Job, and of its `owner` if that is known. Raises InvalidForeign.

    `most` is the number of hosts in the plan, 0 without a plan. If the Job has more pods, the cluster has only these
    hosts.
    """
    # Objects of a list response lack their kind.
    document = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, **original(job)}
    if not most:
        return read(document, owner)
    size = min(parallelism(job), most)
    cluster = read({**document, "spec": {**document["spec"], "parallelism": size, "completions": size}}, owner)
    return structs.replace(cluster, parts=(structs.replace(cluster.parts[0], max_size=most),))


def parallelism(job: Object) -> int:
    """The desired number of a Job's pods."""
    return int((job.get("spec") or {}).get("parallelism", 1))


def hosts_in(plan: PodPlan) -> int:
    """The maximum number of hosts of a plan."""
    return len(Hostlist.parse(plan.hosts))


def plan(cluster: ForeignCluster, *, service: str, domain: str) -> PodPlan:
    """The plan of the pods of a cluster whose Job exists, so that its name is known.

    `service` is the Service for the names of the pods, unless the Job names one (`subdomain`). `domain` is the DNS
    domain of the Kubernetes cluster.
    """
    part = cluster.parts[0]
    spec = Field(cluster.job)["spec"]
    pod = spec["template"]["spec"]
    procs = cluster.variables(lambda source: "").get(PROCS_VARIABLE) if cluster.run is Run.NODE else None
    honest = cluster.options.exit is Exit.HONEST
    quorum = {"broker.quorum": str(part.size)} if part.max_size > part.size else {}
    return PodPlan(
        name=part.job,
        size=part.size,
        hosts=hosts_of(part.job, part.max_size),
        lead=f"{part.job}-0",
        service=pod["subdomain"].text() or service,
        domain=domain,
        quorum=quorum.get("broker.quorum", ""),
        attrs={"log-stderr-level": _LOG_LEVEL, "log-stderr-mode": "local", "tbon.topo": TOPOLOGY, **quorum},
        config={
            "access": {"allow-guest-user": True, "allow-root-owner": True},
            "sched-fluxion-qmanager": {"queue-policy": cluster.queue_policy},
            # The rank of a lost pod is drained, and nothing waits for pods that may join later.
            "headrace": {"drain-lost": True, "expects-late-nodes": False},
        },
        mode=_mode(cluster).value,
        before="",
        lead_before="",
        follower_before="",
        initial_program="",
        after="",
        environment={} if procs is None else {PROCS_VARIABLE: procs},
        output_dir=DEFAULT_OUTPUT,
        working_dir="",
        mount_path=OUR_MOUNTS[0],
        interactive=cluster.interactive,
        # Under the pod failure policy that admission adds, killed pods are replaced.
        replaces_killed=honest and not spec["podFailurePolicy"].given,
        # If the Job needs the success of all indexes, pods of other indexes end by themselves.
        restarts_lead=not honest and pod["restartPolicy"].text() == "OnFailure" and spec["successPolicy"].given,
        tasks_per_node=cluster.tasks // cluster.size,
        node_variables=cluster.node_variables,
    )


def _mode(cluster: ForeignCluster) -> Mode:
    if cluster.interactive:
        return Mode.INTERACTIVE
    return Mode.LAUNCHER if cluster.run is Run.PROGRAM else Mode.SUBMIT


def resized(pod_plan: PodPlan, size: int) -> PodPlan:
    """The plan for another number of pods, at most all of its hosts."""
    most = hosts_in(pod_plan)
    size = min(size, most)
    quorum = {"broker.quorum": str(size)} if size < most else {}
    others = {name: value for name, value in pod_plan.attrs.items() if name != "broker.quorum"}
    return structs.replace(pod_plan, size=size, quorum=quorum.get("broker.quorum", ""), attrs={**others, **quorum})


def secret(job: Object, keys: Keys, pod_plan: PodPlan) -> Object:
    """The Secret (v1) of a Job's cluster."""
    metadata = _owned(job, names.secret(id_of(job)))
    return secret_of(metadata, {PLAN_FILE: encode(pod_plan), **texts(keys)})


def plan_in(found: Object) -> PodPlan:
    """The plan in a Secret. Raises ValueError if there is none."""
    name = found["metadata"]["name"]
    try:
        return decode(base64.b64decode((found.get("data") or {})[PLAN_FILE], validate=True))
    except (KeyError, binascii.Error, TypeError, ValueError):
        raise ValueError(f"Secret {name} has no plan ({PLAN_FILE}): delete it with its Job") from None


def changed_plan(pod_plan: PodPlan) -> Object:
    """The merge patch (RFC 7386) that replaces the plan in a Secret."""
    return {"data": {PLAN_FILE: base64.b64encode(encode(pod_plan).encode()).decode()}}


def service(job: Object) -> Object:
    """The headless Service (v1) by which the pods find each other before they are ready."""
    return headless(_owned(job, names.service(id_of(job))), {names.ID_LABEL: id_of(job)})


def has_own_service(job: Object) -> bool:
    """True if the operator creates the Service for the pods' names, because the Job names none."""
    subdomain: str = job["spec"]["template"]["spec"].get("subdomain", "")
    return subdomain == names.service(id_of(job))


def _owned(job: Object, name: str) -> Object:
    meta = job["metadata"]
    return {
        "name": name,
        "namespace": meta.get("namespace", ""),
        "labels": {names.ID_LABEL: id_of(job), MANAGED_BY: MANAGER},
        "ownerReferences": [controlled_by(JOBS.api_version, JOBS.kind, meta["name"], meta["uid"])],
    }
