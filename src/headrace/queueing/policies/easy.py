"""EASY backfill: the first waiting job is promised a start, and whoever does not delay it may go first."""

from __future__ import annotations

from headrace.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("easy", reservations=1, backfill=True)
