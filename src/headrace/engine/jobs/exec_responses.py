"""The responses of an exec service to the start of a job (RFC 32), by the field `type`.

Types only: the responses are dictionaries, since any implementation of an exec service may send them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Started(TypedDict):
    """The job runs on all its nodes."""

    id: int
    type: Literal["start"]
    data: dict[str, Any]


class FinishData(TypedDict):
    # The largest wait status of the job's shells.
    status: int
    # An extension of RFC 32: true if the job must be queued again because it has lost a node.
    requeue: NotRequired[bool]


class Finished(TypedDict):
    """All tasks of the job have ended."""

    id: int
    type: Literal["finish"]
    data: FinishData


class ReleaseData(TypedDict):
    # An idset, or "all".
    ranks: str
    final: bool
    # As in FinishData.
    requeue: NotRequired[bool]


class Released(TypedDict):
    """The job no longer uses `ranks`. The last response of a job is `final`."""

    id: int
    type: Literal["release"]
    data: ReleaseData


class ExceptionData(TypedDict):
    severity: int
    type: str
    note: NotRequired[str]
    wait_status: NotRequired[int]


class Raised(TypedDict):
    """An exception of the job (RFC 21). One of severity 0 ends it."""

    id: int
    type: Literal["exception"]
    data: ExceptionData


ExecResponse = Union[Started, Finished, Released, Raised]
