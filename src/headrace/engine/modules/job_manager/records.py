"""The records of the job manager's core, and the journal entries that are made of them. Only values.

An entry is a msgpack array: its tag, a number (the job id, if the entry is about a job), and a value. Journals of
earlier versions are read with the same types, so a tag and the form of its value never change, and a tag is never
reused.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from headrace.engine.jobs.pack import SavedLog, Submission
from headrace.engine.jobs.record import Event


class JobAdded(Struct, frozen=True):
    """A new job, with the jobspec that ingest stored. The journal has it as JobSubmitted."""

    id: int
    jobspec: dict[str, Any]


class EventsPosted(Struct, frozen=True, array_like=True, tag=2):
    """New events of a job: the index of the first one in its eventlog, and the events."""

    id: int
    news: tuple[int, list[Event]]


class ResourcesSet(Struct, frozen=True, array_like=True, tag=3):
    """The resources that a job was allocated, an R of RFC 20."""

    id: int
    r: dict[str, Any]


class QueuesChanged(Struct, frozen=True, array_like=True, tag=5):
    """The settings of all queues, as `Queues.save` returns them. `number` has no meaning."""

    number: int
    settings: list[list[Any]]


class JobsPurged(Struct, frozen=True, array_like=True, tag=6):
    """Inactive jobs that were purged. `number` has no meaning."""

    number: int
    ids: list[int]


class JobReaped(Struct, frozen=True, array_like=True, tag=7):
    """A waitable job that was waited for. `why` is its failure_text."""

    id: int
    why: str


class LogAppended(Struct, frozen=True, array_like=True, tag=8):
    """Lines that a user appended to a log of an active or inactive job.

    The value is the log's name, its size before the append in bytes, and the lines.
    """

    id: int
    part: tuple[str, int, bytes]


Record = Union[JobAdded, EventsPosted, ResourcesSet, QueuesChanged, JobsPurged, JobReaped, LogAppended]


class TextAdded(Struct, frozen=True, array_like=True, tag=0):
    """A reference text of jobs/pack.py. Later submissions refer to it by its number."""

    number: int
    text: bytes


class JobSubmitted(Struct, frozen=True, array_like=True, tag=1):
    """A new job with its complete submission."""

    id: int
    submission: Submission


class LogsSaved(Struct, frozen=True, array_like=True, tag=4):
    """The guest logs of a job that ended, by name."""

    id: int
    logs: dict[str, SavedLog]


Entry = Union[
    TextAdded, JobSubmitted, EventsPosted, ResourcesSet, LogsSaved, QueuesChanged, JobsPurged, JobReaped, LogAppended
]
