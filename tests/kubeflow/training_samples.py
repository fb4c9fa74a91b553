"""Runtimes for jobs of the SDK."""

from __future__ import annotations

from typing import Any

from flux_jobs.read.samples import runtime
from headrace.flux_jobs.read.options import ANNOTATION


def own(name: str, options: str = "", container: dict[str, Any] | None = None, **policy: Any) -> dict[str, Any]:
    """A runtime of three nodes with two GPUs each; `options` are those of its Job."""
    resources = {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}}
    document = runtime(
        {"numNodes": 3, "torch": {"numProcPerNode": "auto"}, **policy}, resources=resources, **(container or {})
    )
    document["metadata"] = {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}}
    if options:
        metadata = document["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["metadata"]
        metadata["annotations"] = {ANNOTATION: options}
    return document
