"""Conservative backfill: every pending job has a reservation, and no reservation is ever put off."""

from __future__ import annotations

from headrace.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("conservative", reservations=None, backfill=True, keeps=True)
