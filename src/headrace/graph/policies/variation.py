"""Alike first: resources whose performance classes lie closest together, so that no task waits for a slower one.

The class is a number in the property `perf_class`; a vertex without one counts as class 0.
"""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("variation", order=-1, close=True, by="perf_class")
