"""Highest ids first, compared among siblings' own ids."""

from __future__ import annotations

from headrace.graph.policies.policy import Policy

POLICY = Policy("high", order=1)
