"""The numbers of a job that RFC 21 gives: its states, how it ended, and the flags of its submission.

States and results are single bits, because requests ask for several at once.
"""

from __future__ import annotations

from headrace.spec import job_exception

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 1, 2, 4, 8, 16, 32, 64
PENDING = DEPEND | PRIORITY | SCHED
RUNNING = RUN | CLEANUP
ACTIVE = PENDING | RUNNING
# By the names of requests and responses (RFC 43), in the order of a job's life. NEW is not among them: a job leaves it
# at once, so jobs in this state are not counted, and commands do not ask for them.
STATE_BITS = {
    "depend": DEPEND,
    "priority": PRIORITY,
    "sched": SCHED,
    "run": RUN,
    "cleanup": CLEANUP,
    "inactive": INACTIVE,
}
STATE_MASKS = {"pending": PENDING, "running": RUNNING, "active": ACTIVE}

COMPLETED, FAILED, CANCELED, TIMEOUT = 1, 2, 4, 8
RESULT_BITS = {"completed": COMPLETED, "failed": FAILED, "canceled": CANCELED, "timeout": TIMEOUT}

FLAG_PRE_SIGNED, FLAG_DEBUG, FLAG_WAITABLE, FLAG_NOVALIDATE = 1, 2, 4, 8


def result_of(fatal: Optional[str], status: Optional[int]) -> int:
    """The result of an inactive job: `fatal` is the type of the exception that ended it, `status` its wait status; each
    is None for a job without one.
    """
    if fatal is not None:
        return {job_exception.CANCEL: CANCELED, job_exception.TIMEOUT: TIMEOUT}.get(fatal, FAILED)
    return COMPLETED if status == 0 else FAILED
