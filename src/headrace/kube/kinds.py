"""Our own kind, the kinds of the objects that are made of it, and those of Jobs' owners."""

from __future__ import annotations

from ..minicluster.foreign import jobset, trainjob
from .runtime.kinds import CONFIG_MAPS, EVENTS, JOBS, LEASES, PODS, SECRETS, SERVICES, Kind

MINICLUSTERS = Kind("flux-framework.org", "v1alpha2", "miniclusters", "MiniCluster")
KINDS = {one.kind: one for one in (MINICLUSTERS, JOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS, EVENTS, LEASES)}
JOBSETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", jobset.KIND)
TRAINJOBS = Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", trainjob.KIND)
