"""The outputs of the job manager's core: requests to the scheduler, and effects. Only values.

Requests are sent to the scheduler at the end of the turn. Effects are released when the records of the same step are
durable; the service around the core adds some of them. Each kind has its own type, so mypy checks that every `match`
on one of the unions covers all kinds.
"""

from __future__ import annotations

import asyncio
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
    """Change the priorities of jobs that wait for resources, by id."""

    priorities: dict[int, int]


class Free(Struct, frozen=True):
    """Free the resources `r` (an R of RFC 20) of a job."""

    job: Job
    r: dict[str, Any] | None


class Inherit(Struct, frozen=True):
    """Report that `successor` took over the resources of `job`.

    An extension of RFC 27 (docs/dev/interfaces.md).
    """

    job: Job
    successor: Job


Request = Union[Alloc, Cancel, Prioritize, Free, Inherit]

# -- effects


class Start(Struct, frozen=True):
    """Have the exec service run a job (RFC 32)."""

    job: Job


class Expiration(Struct, frozen=True):
    """Send scheduler and exec service the new expiration of a running job.

    `time` is in seconds since the epoch; 0 means never.
    """

    id: int
    time: float


class Raised(Struct, frozen=True):
    """Publish an exception of the job `id` (RFC 21)."""

    id: int
    type: str
    severity: int


class Annotated(Struct, frozen=True):
    """Send the changed annotations of a job to watchers."""

    job: Job


class Rearm(Struct, frozen=True):
    """Rearm the timer, since `Core.next_deadline` may have changed."""


class Answer(Struct, frozen=True):
    """Respond to a request with `body`, or without a payload if `body` is None."""

    msg: Message
    body: dict[str, Any] | None


class Durable(Struct, frozen=True):
    """Complete `done`, since the records of this step and of all earlier ones are durable."""

    done: asyncio.Future[None]


class Purged(Struct, frozen=True):
    """Delete the data of purged jobs."""

    ids: list[int]


Effect = Union[Start, Expiration, Raised, Annotated, Rearm, Answer, Durable, Purged]
