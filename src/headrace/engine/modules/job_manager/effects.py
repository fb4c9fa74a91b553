"""The outputs of the job manager's core: requests to the scheduler, and effects. Only values.

Requests go to the scheduler at the end of the turn. Effects are released when the records of the same step are durable;
some are added by the service around the core. Each kind is a type of its own, so that mypy sees to it that each `match`
on one of the unions has a case for every kind.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from headrace.engine.jobs.record import Job
from headrace.formats.spec.message import Message

# -- requests to the scheduler (RFC 27)


class Alloc(Struct, frozen=True):
    """Allocate resources to a job."""

    job: Job


class Cancel(Struct, frozen=True):
    """Drop the alloc request of the job `id`."""

    id: int


class Prioritize(Struct, frozen=True):
    """The job `id`, which waits for resources, has another priority."""

    id: int
    priority: int


class Free(Struct, frozen=True):
    """Take back the resources `r` (an R of RFC 20) of a job."""

    job: Job
    r: dict[str, Any] | None


class Inherit(Struct, frozen=True):
    """`successor` has started on what `job` held: an extension of RFC 27 (docs/dev/interfaces.md)."""

    job: Job
    successor: Job


Request = Union[Alloc, Cancel, Prioritize, Free, Inherit]

# -- effects


class Start(Struct, frozen=True):
    """Have the exec service run a job (RFC 32)."""

    job: Job


class Expiration(Struct, frozen=True):
    """Tell scheduler and exec service when the running job `id` ends now, in seconds since the epoch; 0 for never."""

    id: int
    time: float


class Raised(Struct, frozen=True):
    """Publish that the job `id` has an exception of this type (RFC 21)."""

    id: int
    type: str
    severity: int


class Annotated(Struct, frozen=True):
    """Show the annotations of a job, which have changed, to those who watch."""

    job: Job


class Rearm(Struct, frozen=True):
    """Set the timer anew: `Core.next_deadline` may have changed."""


class Answer(Struct, frozen=True):
    """Answer a request with `body`, or without payload if it is None."""

    msg: Message
    body: dict[str, Any] | None


class Purged(Struct, frozen=True):
    """Forget the data of inactive jobs that were purged."""

    ids: list[int]


Effect = Union[Start, Expiration, Raised, Annotated, Rearm, Answer, Purged]
