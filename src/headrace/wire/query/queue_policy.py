"""Queues (RFC 33): the values of their policies, and their status.

A queue that does not set a value itself has the value of the policy for all queues.
"""

from __future__ import annotations

from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from headrace.wire.client.handle import Handle

_INFINITE = float("inf")


def policy_value(policies: Iterable[Any], *path: str) -> Any:
    """The value at `path` in the first of `policies` that sets it, otherwise None.

    Callers pass a queue's own policy first, then the general one.
    """
    for policy in policies:
        value: Any = policy
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def seconds(value: Any) -> float:
    """The seconds of a policy's time limit; inf for no limit."""
    if value is None:
        return _INFINITE
    return (duration.parse(value) if isinstance(value, str) else float(value)) or _INFINITE


def status_of(handle: Handle, name: str, nodeid: int = 0) -> Any:
    """Request a queue's status and return the call; "" is the anonymous queue."""
    return handle.rpc("job-manager.queue-status", {"name": name} if name else {}, nodeid)
