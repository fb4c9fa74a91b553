"""Reads a JobSet (jobset.x-k8s.io/v1alpha2): one of its Jobs is the cluster. Pure.

On Kubernetes each labelled Job is a cluster of its own, and so is each replica of such a Job.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.problems import LABEL, LABEL_RULE

from . import job
from .cluster import LABEL_KEY, LABEL_VALUE, ForeignCluster
from .field import Field
from .job import Owner, check_head, read_name

API_VERSION = "jobset.x-k8s.io/v1alpha2"
KIND = "JobSet"
# Fields of a JobSet that concern only its controller, not the cluster.
_OTHERS = (
    *("network", "successPolicy", "failurePolicy", "startupPolicy", "suspend", "managedBy", "ttlSecondsAfterFinished"),
    "volumeClaimPolicies",
)


def read(document: Any) -> ForeignCluster:
    """The cluster of a JobSet's document. Raises InvalidForeign with all problems."""
    jobset = Field(document)
    check_head(jobset, API_VERSION, KIND)
    metadata = jobset["metadata"]
    owner = Owner(KIND, read_name(metadata), metadata["namespace"].text())
    return read_jobs(jobset["spec"], owner)


def read_jobs(spec: Field, owner: Owner, chosen: str = "") -> ForeignCluster:
    """The cluster of a JobSet's `spec`: the Job `chosen`, or the Job that the JobSet marks.

    `owner` creates the JobSet. Raises InvalidForeign with all problems.
    """
    jobs = spec["replicatedJobs"].items()
    names = [one["name"].required_text() for one in jobs]
    if not jobs:
        spec["replicatedJobs"].refuse("must have at least one Job")
        spec.end()
    index = _choose(spec, jobs, names, chosen)
    one = jobs[index]
    if names[index] and not LABEL.match(names[index]):
        one["name"].refuse(f"{names[index]!r} cannot name hosts: {LABEL_RULE}")
    replicas = one["replicas"].number(1, 1)
    others = [f"{one['replicas'].path} (the first of {replicas} Jobs)"] if replicas > 1 else []
    others += [f"{other.path} ({name})" for other, name in zip(jobs, names) if other is not one]
    others += [spec[key].path for key in _OTHERS if spec[key].given]
    others += [one["dependsOn"].path] if one["dependsOn"].given else []
    template = one["template"]
    document = job_document(template, f"{owner.name}-{names[index]}-0", owner.namespace)
    network = spec["network"]
    subdomain = (network["subdomain"].text() or owner.name) if network["enableDNSHostnames"].flag(True) else ""
    return job.read(document, owner._replace(others=(*owner.others, *others), subdomain=subdomain), template)


def job_document(template: Field, name: str, namespace: str) -> dict[str, Any]:
    """The Job made from the template of a replicated Job."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    for key in ("labels", "annotations"):
        if template["metadata"][key].given:
            metadata[key] = template["metadata"][key].value
    spec = template["spec"].value
    return {"apiVersion": job.API_VERSION, "kind": job.KIND, "metadata": metadata, "spec": spec}


def _choose(spec: Field, jobs: list[Field], names: list[str], chosen: str) -> int:
    """The index of the Job that is the cluster: the labelled one, the only one, or the coordinator's."""
    if chosen in names:
        return names.index(chosen)
    marked = [
        index
        for index, one in enumerate(jobs)
        if one["template"]["metadata"]["labels"].mapping().get(LABEL_KEY) == LABEL_VALUE
    ]
    if len(marked) == 1:
        return marked[0]
    coordinator = spec["coordinator"]["replicatedJob"].text()
    if not marked and len(jobs) == 1:
        return 0
    if not marked and coordinator in names:
        return names.index(coordinator)
    which = f"{len(marked)} of its {len(jobs)} Jobs have" if marked else f"none of its {len(jobs)} Jobs has"
    spec["replicatedJobs"].refuse(
        f"{which} the label {LABEL_KEY}: {LABEL_VALUE} in template.metadata.labels, one must: {', '.join(names)}"
    )
    return 0
