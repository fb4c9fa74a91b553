"""The candidates whose ids are closest together, so that a job's resources share as much hardware as possible."""

from __future__ import annotations

from headrace.sched.graph.policies.policy import Policy

POLICY = Policy("locality", order=-1, close=True)
