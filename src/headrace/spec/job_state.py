"""The numbers of a job that RFC 21 gives: its states, how it ended, and the flags of its submission.

States and results are single bits, because requests ask for several at once.
"""

from __future__ import annotations

NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 1, 2, 4, 8, 16, 32, 64
PENDING = DEPEND | PRIORITY | SCHED
RUNNING = RUN | CLEANUP
ACTIVE = PENDING | RUNNING

COMPLETED, FAILED, CANCELED, TIMEOUT = 1, 2, 4, 8

FLAG_PRE_SIGNED, FLAG_DEBUG, FLAG_WAITABLE, FLAG_NOVALIDATE = 1, 2, 4, 8
