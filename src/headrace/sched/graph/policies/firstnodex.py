"""The first match is taken, and nodes are given whole."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("firstnodex", order=1, stops=True, whole=frozenset({"node"}))
