"""Lowest ids first; only ids of siblings are compared."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("low", order=-1)
