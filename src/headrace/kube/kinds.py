"""Our own kind, and the kinds of the objects that are made of it."""

from __future__ import annotations

from .runtime.api import CONFIG_MAPS, EVENTS, JOBS, LEASES, PODS, SECRETS, SERVICES, Kind

MINICLUSTERS = Kind("flux-framework.org", "v1alpha2", "miniclusters", "MiniCluster")
KINDS = {one.kind: one for one in (MINICLUSTERS, JOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS, EVENTS, LEASES)}
