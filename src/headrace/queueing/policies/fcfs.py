"""First come, first served: nobody passes the first job that must wait."""

from __future__ import annotations

from headrace.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("fcfs", reservations=0, backfill=False)
