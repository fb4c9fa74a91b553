"""Conservative backfill: every pending job has a reservation, which no job behind it in the queue ever puts off."""

from __future__ import annotations

from headrace.sched.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("conservative", reservations=None, backfill=True, keeps=True)
