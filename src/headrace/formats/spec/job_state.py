"""The constants of RFC 21: job states, results, and submission flags.

States and results are single bits, because a request may name several. They are integers, which mypy checks as closed
sets (Literal types). With members of an IntFlag, each `state & PENDING` would take 1.6 us instead of 0.15 us (CPython
3.11) a dozen times for each job, and short commands would import `enum` (docs/dev/decisions/0010).
"""

from __future__ import annotations

from headrace.formats.spec import job_exception

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Literal, Optional

    State = Literal[1, 2, 4, 8, 16, 32, 64]
    Result = Literal[1, 2, 4, 8]

NEW: State = 1
DEPEND: State = 2
PRIORITY: State = 4
SCHED: State = 8
RUN: State = 16
CLEANUP: State = 32
INACTIVE: State = 64
PENDING = DEPEND | PRIORITY | SCHED
RUNNING = RUN | CLEANUP
ACTIVE = PENDING | RUNNING
# States by their names in requests and responses (RFC 43), in the order in which a job enters them. NEW is missing: a
# job leaves it at once, so jobs in this state are not counted, and commands do not ask for them.
STATE_BITS: Dict[str, State] = {
    "depend": DEPEND,
    "priority": PRIORITY,
    "sched": SCHED,
    "run": RUN,
    "cleanup": CLEANUP,
    "inactive": INACTIVE,
}
STATE_MASKS = {"pending": PENDING, "running": RUNNING, "active": ACTIVE}

COMPLETED: Result = 1
FAILED: Result = 2
CANCELED: Result = 4
TIMEOUT: Result = 8
RESULT_BITS: Dict[str, Result] = {"completed": COMPLETED, "failed": FAILED, "canceled": CANCELED, "timeout": TIMEOUT}

FLAG_PRE_SIGNED, FLAG_DEBUG, FLAG_WAITABLE, FLAG_NOVALIDATE = 1, 2, 4, 8


def result_of(fatal: Optional[str], status: Optional[int]) -> Result:
    """The result of an inactive job.

    `fatal` is the type of the exception that ended the job, `status` its wait status. Each is None if there is none.
    """
    if fatal == job_exception.CANCEL:
        return CANCELED
    if fatal == job_exception.TIMEOUT:
        return TIMEOUT
    if fatal is not None:
        return FAILED
    return COMPLETED if status == 0 else FAILED
