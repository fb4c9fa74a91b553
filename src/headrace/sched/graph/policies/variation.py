"""Nodes of the lowest performance class first, so that the nodes of a job differ little in performance.

The class is the number in a node's property `perf_class` (command `set-property`); a node without one comes last.
"""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("variation", order=-1, node_weight=1_000_000, node_property="perf_class")
