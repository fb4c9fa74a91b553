"""Hybrid backfill: the first pending jobs, 64 by default, have reservations."""

from __future__ import annotations

from headrace.sched.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("hybrid", reservations=64, backfill=True, keeps=True)
