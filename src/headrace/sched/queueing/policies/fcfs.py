"""First come, first served: no job starts before the first pending job."""

from __future__ import annotations

from headrace.sched.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("fcfs", reservations=0, backfill=False)
