"""Headrace's own training runtimes, by name, as ClusterTrainingRuntimes. Pure."""

from __future__ import annotations

from typing import Any

from .cluster import LABEL_KEY, LABEL_VALUE
from .options import ANNOTATION

API_VERSION = "trainer.kubeflow.org/v1alpha1"
KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
DISTRIBUTED = "headrace-distributed"
TORCH = "headrace-torch"


def _runtime(name: str, framework: str, policy: dict[str, Any], image: str, options: str) -> dict[str, Any]:
    metadata = {"labels": {STEP_LABEL: "trainer", LABEL_KEY: LABEL_VALUE}, "annotations": {ANNOTATION: options}}
    pod = {"containers": [{"name": "node", "image": image}]}
    job = {"name": "node", "template": {"metadata": metadata, "spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": API_VERSION,
        "kind": KINDS[0],
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": framework}},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


BUILT_IN = {
    DISTRIBUTED: _runtime(DISTRIBUTED, "headrace", {}, "python:3.12-slim", "{run: tasks}"),
    TORCH: _runtime(TORCH, "torch", {"torch": {}}, "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime", "{run: node}"),
}
