"""Conservative backfill: every waiting job is promised a start, and no promise is ever put off."""

from __future__ import annotations

from headrace.queueing.policies.policy import QueuePolicy

POLICY = QueuePolicy("conservative", reservations=None, backfill=True, keeps=True)
