"""The best first: the nodes of the lowest performance class, so that a job's nodes differ little.

The class is a number in a node's property `perf_class`, which `set-property` sets; a node without one comes last.
"""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("variation", order=-1, node_weight=1_000_000, by="perf_class")
