"""Highest node ids first, then highest ids inside a node."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("hinode", order=1, node_weight=10_000)
