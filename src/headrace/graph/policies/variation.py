"""Alike first: nodes of one performance class, so that no task waits for a slower one."""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("variation", order=1, classes="perf_class")
