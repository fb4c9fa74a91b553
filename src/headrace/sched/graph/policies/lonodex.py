"""Lowest node ids first, and nodes are given whole."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("lonodex", order=-1, node_weight=10_000, whole=frozenset({"node"}))
