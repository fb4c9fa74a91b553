"""Exceptions of jobs (RFC 21): severities, and the types that Headrace raises or acts on. Other types are allowed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# An exception of severity FATAL, the most severe, ends its job. The others are for information.
FATAL = 0
SEVERITIES = range(8)

# The scheduler has refused the job.
ALLOC = "alloc"
CANCEL = "cancel"
# A job that this job depends on has ended otherwise than it asks for.
DEPENDENCY = "dependency"
# The job could not be started, or its shell has failed.
EXEC = "exec"
# A node of the job is lost.
NODE_FAILURE = "node-failure"
# The scheduler was restarted and has no place for the job's resources.
SCHEDULER_RESTART = "scheduler-restart"
# The job has reached its time limit.
TIMEOUT = "timeout"


def is_fatal(event: str, context: Any) -> bool:
    """True for the name and the context of an event that ends its job."""
    return event == "exception" and context.get("severity") == FATAL
