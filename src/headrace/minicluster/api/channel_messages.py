"""The messages between the operator and a MiniCluster's lead: each is a JSON object. Pure.

A request has an `id`, an `op` and the fields of that operation; a response has the request's `id`. A `watch` gets many
responses, at most two per second, while the connection lasts. A response with `error` is the last one to its request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from headrace.formats.spec.job_state import STATE_BITS

# The maximum size in bytes of a message from the operator (which may contain a broker configuration) and from a lead.
LARGEST = 1 << 20
LARGEST_OF_LEAD = 1 << 16
# The maximum number of hosts that a state names, and of characters that the operator keeps of an error.
MOST_NAMED = 64
LONGEST_ERROR = 1000

_Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class State(Struct, frozen=True, kw_only=True):
    """The state that a lead reports to its watchers."""

    state: Literal["starting", "running", "finished"] = "starting"
    # The number of brokers that are up.
    brokers_up: _Count = 0
    # The number of brokers that are connected but do not answer, which do not count as up, and the first `MOST_NAMED`
    # of their hosts, as a hostlist (RFC 29).
    brokers_silent: _Count = 0
    silent: Annotated[str, Meta(max_length=MOST_NAMED * 256)] = ""
    # The number of jobs by state (RFC 21).
    jobs: dict[Literal[tuple(STATE_BITS)], _Count] = {}  # type: ignore[valid-type]
    # The number of nodes that running and pending jobs need.
    demand_nodes: _Count = 0
    # The end of the last active job, in seconds since the epoch; None while a job is active.
    idle_since: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    # True if the instance was saved before a shutdown and has not ended yet.
    saved: bool = False


class Resized(Struct, frozen=True):
    """The response to a resize: the ids of at most `MOST_NAMED` jobs that ran on the removed hosts."""

    jobs: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=MOST_NAMED)] = ()


# The fields of each operation: type, and whether it is required.
_OPERATIONS: Mapping[str, Mapping[str, tuple[type, bool]]] = {
    "watch": {},
    "resize": {"size": (int, True), "max_size": (int, False), "hosts": (str, False), "group": (str, False)},
    "reload": {"config": (dict, True)},
    "save": {"path": (str, True)},
    "go_on": {},
    "end": {"path": (str, False)},
}
_NAMES = {int: "a whole number", str: "text", dict: "an object"}


class MessageError(ValueError):
    """An invalid message; `id` is the request's id, None if it has none."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """A message of any kind. Raises MessageError."""
    try:
        body = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as exc:
        raise MessageError(f"not JSON: {exc}") from None
    if not isinstance(body, dict):
        raise MessageError("not a JSON object")
    return body


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def parse_state(body: Mapping[str, Any]) -> State:
    """Parse a state; unknown fields, from another version, are ignored. Raises MessageError."""
    try:
        return convert(body, State)
    except ValidationError as exc:
        raise MessageError(str(exc)) from None


def parse_resized(body: Mapping[str, Any]) -> Resized:
    """Parse the response to a resize. Raises MessageError."""
    try:
        return convert(body, Resized)
    except ValidationError as exc:
        raise MessageError(str(exc)) from None


def parse_request(data: bytes) -> dict[str, Any]:
    """Parse a request and check its operation and fields. Raises MessageError."""
    body = decode(data)
    id = body.get("id")
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 1 << 63:
        raise MessageError("id: must be a whole number")
    op = body.get("op")
    fields = _OPERATIONS.get(op) if isinstance(op, str) else None
    if fields is None:
        raise MessageError(f"op: must be one of {', '.join(_OPERATIONS)}", id)
    for name, value in body.items():
        if name in ("id", "op"):
            continue
        kind = fields.get(name, (None, False))[0]
        if kind is None:
            raise MessageError(f"{name}: {op} takes no such field", id)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MessageError(f"{name}: must be {_NAMES[kind]}", id)
        if isinstance(value, int) and not 0 <= value < 1 << 31:
            raise MessageError(f"{name}: must be from 0 to {(1 << 31) - 1}", id)
    for name, (_kind, needed) in fields.items():
        if needed and name not in body:
            raise MessageError(f"{name}: {op} needs it", id)
    return body
