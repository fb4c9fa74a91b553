"""Job exceptions (RFC 21): severities, and the types that Headrace raises or handles.

Other types are allowed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# An exception of severity FATAL, the most severe, ends its job. Other severities are informational.
FATAL = 0
SEVERITIES = range(8)

# The scheduler rejected the job.
ALLOC = "alloc"
CANCEL = "cancel"
# A job that this job depends on did not end as the dependency requires.
DEPENDENCY = "dependency"
# The job could not be started, or its shell failed.
EXEC = "exec"
# A node of the job was lost.
NODE_FAILURE = "node-failure"
# The scheduler was restarted and could not allocate the job's resources again.
SCHEDULER_RESTART = "scheduler-restart"
# The job reached its time limit.
TIMEOUT = "timeout"


def is_fatal(event: str, context: Any) -> bool:
    """True if an event with this name and context is a fatal exception."""
    return event == "exception" and context.get("severity") == FATAL
