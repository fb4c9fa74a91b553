"""EASY backfill: the first pending job has a reservation, and jobs that do not delay it may start before it."""

from __future__ import annotations

from headrace.sched.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("easy", reservations=1, backfill=True)
