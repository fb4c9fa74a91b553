"""The messages between the operator and a MiniCluster's lead: each is a JSON object. Pure.

A request has an `id`, an `op` and the fields of that operation; a response has the request's `id`. `watch` has many
responses, at most two in a second, while the connection lasts. A response with `error` is the last to its request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# The limit of a message, in bytes.
LARGEST = 1 << 20

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
    """An invalid message; `id` is that of the request if it has one."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """A message of any kind. Raises MessageError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise MessageError(f"not JSON: {exc}") from None
    if not isinstance(body, dict):
        raise MessageError("not a JSON object")
    return body


def parse_request(data: bytes) -> dict[str, Any]:
    """A request with a known operation and that operation's fields. Raises MessageError."""
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
