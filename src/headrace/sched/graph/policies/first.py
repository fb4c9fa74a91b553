"""The first match is taken: the search stops as soon as it has found enough."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("first", order=1, stops=True)
