"""Neighbours first: the tightest run of ids that satisfies the count."""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("locality", order=1, interval=True)
