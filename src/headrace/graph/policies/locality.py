"""Neighbours first: the candidates whose ids lie closest together, so that a job's parts share as much as they can."""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("locality", order=-1, close=True)
