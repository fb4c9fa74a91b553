"""Hybrid backfill: the first waiting jobs, 64 unless told otherwise, are promised a start."""

from __future__ import annotations

from headrace.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("hybrid", reservations=64, backfill=True, keeps=True)
