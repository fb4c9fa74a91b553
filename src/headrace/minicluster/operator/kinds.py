"""The kinds of the objects that belong to a MiniCluster, by name."""

from __future__ import annotations

from headrace.k8s.objects.kinds import CONFIG_MAPS, EVENTS, JOBS, LEASES, MINICLUSTERS, PODS, SECRETS, SERVICES

KINDS = {one.kind: one for one in (MINICLUSTERS, JOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS, EVENTS, LEASES)}
