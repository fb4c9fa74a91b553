"""The Indexed Jobs of a MiniCluster: one for its own pods, and one for each of its groups.

Only the lead, index 0, decides the end of the Job: the Job succeeds when the lead succeeds, whatever the followers do.
Followers never exit with a non-zero code by themselves, so a non-zero code is the lead's, and fails the Job without a
retry. The exceptions are 137 and 143 (SIGKILL and SIGTERM): a pod of any index may have been killed (out of memory,
deleted). It is replaced, and the failure counts towards `backoffLimit`. A pod that Kubernetes disrupts is replaced
without being counted.
"""

from __future__ import annotations

from typing import Any

from ...api.fields import Group, MiniCluster, Pod
from ...api.pod_plan import KILLED
from .. import names
from ..objects import as_object, owned, without_unset
from .images import Images
from .pods import pod_template, template_labels

# The success of the lead, index 0, is the Job's.
SUCCESS_POLICY: dict[str, Any] = {"rules": [{"succeededIndexes": "0"}]}
# A pod is replaced only when it has ended, so that two pods never have the same host name.
REPLACEMENT_POLICY = "Failed"
_BACKOFF_LIMIT = 100


def job(cluster: MiniCluster, images: Images, *, uid: str, size: int) -> dict[str, Any]:
    """The Job (batch/v1) of the MiniCluster's own pods; `size` is their number."""
    spec = cluster.spec
    pod = spec.pod or Pod()
    labels = spec.job_labels or _labels(template_labels(cluster, pod), names.job(cluster))
    fields = {
        **_spec(cluster, pod, size),
        "successPolicy": SUCCESS_POLICY,
        "template": pod_template(cluster, images),
    }
    return _job(owned(cluster, names.job(cluster), uid, labels), fields)


def group_job(cluster: MiniCluster, group: Group, images: Images, *, uid: str, size: int) -> dict[str, Any]:
    """The Job of a group's pods.

    They are followers and end when the lead ends, so the Job has no success policy.
    """
    pod = group.pod or cluster.spec.pod or Pod()
    name = names.group_job(cluster, group)
    labels = cluster.spec.job_labels or _labels(template_labels(cluster, pod, group), name)
    fields = {**_spec(cluster, pod, size), "template": pod_template(cluster, images, group)}
    return _job(owned(cluster, name, uid, labels), fields)


def failure_policy(cluster: MiniCluster) -> dict[str, Any]:
    """The pod failure policy of the MiniCluster's Jobs: the file's, or the default."""
    if cluster.spec.pod_failure_policy:
        return as_object(cluster.spec.pod_failure_policy)
    return default_failure_policy(cluster.name)


def default_failure_policy(container: str) -> dict[str, Any]:
    """The failure policy of Jobs whose `container` has the broker."""
    codes = {"containerName": container, "operator": "NotIn", "values": [0, *KILLED]}
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": codes},
        ]
    }


def _labels(labels: dict[str, str], name: str) -> dict[str, str]:
    """The labels of a Job if the file has none: those of its pods, as the API server sets them by default."""
    return {**labels, names.JOB_NAME: name, f"batch.kubernetes.io/{names.JOB_NAME}": name}


def _spec(cluster: MiniCluster, pod: Pod, size: int) -> dict[str, Any]:
    spec = cluster.spec
    fields: dict[str, Any] = {
        "activeDeadlineSeconds": spec.deadline_seconds or None,
        "backoffLimit": _BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
        "completionMode": "Indexed",
        "completions": size,
        "parallelism": size,
        "suspend": spec.suspend,
    }
    if pod.restart_policy != "OnFailure":
        # Kubernetes accepts a failure policy only for pods with restartPolicy Never.
        fields["podFailurePolicy"] = failure_policy(cluster)
        fields["podReplacementPolicy"] = REPLACEMENT_POLICY
    return fields


def _job(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": without_unset(spec)}
