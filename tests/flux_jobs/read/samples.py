"""Small Jobs, JobSets and TrainJobs, and what is wrong with a document."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.flux_jobs.read.load import load
from headrace.flux_jobs.read.options import ANNOTATION
from headrace.flux_jobs.read.runtimes import STEP_LABEL
from headrace.minicluster.api.fields import InvalidMiniCluster

Document = dict[str, Any]


def container(**fields: Any) -> Document:
    return {"name": "main", "image": "debian:12", "command": ["hostname"], **fields}


def job_spec(size: int = 2, pod: Document | None = None, **fields: Any) -> Document:
    template = {"spec": {"restartPolicy": "Never", **(pod or {"containers": [container()]})}}
    return {"completionMode": "Indexed", "completions": size, "parallelism": size, "template": template, **fields}


def job(options: str = "", name: str = "hello", **fields: Any) -> Document:
    """A Job with the text of its options; `fields` are those of its spec."""
    metadata: Document = {"name": name, **({"annotations": {ANNOTATION: options}} if options else {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job_spec(**fields)}


def jobset(*jobs: Document, **fields: Any) -> Document:
    named = [{"name": f"part{index}", "replicas": 1, **one} for index, one in enumerate(jobs)]
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}}
    return {**head, "spec": {"replicatedJobs": named, **fields}}


def runtime(policy: Document | None = None, **container_fields: Any) -> Document:
    """A runtime with an initializer before the trainer, as those of Trainer have it."""
    node = {"name": "node", "image": "pytorch", **container_fields}
    steps = [
        {
            "name": name,
            "template": {
                "metadata": {"labels": {STEP_LABEL: step}},
                "spec": {"template": {"spec": {"containers": [one]}}},
            },
        }
        for name, step, one in (
            ("dataset-initializer", "dataset-initializer", {"name": "dataset-initializer", "image": "init"}),
            ("node", "trainer", node),
        )
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "own"},
        "spec": {"mlPolicy": policy or {}, "template": {"spec": {"replicatedJobs": steps}}},
    }


def trainjob(trainer: Document | None = None, name: str = "own", **fields: Any) -> Document:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train"}}
    given = {} if trainer is None else {"trainer": trainer}
    return {**head, "spec": {"runtimeRef": {"name": name}, **given, **fields}}


def read(*documents: Document) -> ForeignCluster:
    return load(yaml.safe_dump_all(copy.deepcopy(documents))).cluster


def problems(*documents: Document) -> dict[str, str]:
    """The rule that is broken, by path; {} if none is."""
    try:
        read(*documents)
    except InvalidMiniCluster as exc:
        return {problem.path: problem.rule for problem in exc.problems}
    return {}
