"""Queues (RFC 33): the values of their policies, a queue's own or else those for all queues, and their status."""

from __future__ import annotations

from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from headrace.wire.client.handle import Handle

_INFINITE = float("inf")


def policy_value(policies: Iterable[Any], *path: str) -> Any:
    """A value of the first of `policies` (a queue's own, then the general one) that has it, else None."""
    for policy in policies:
        value: Any = policy
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def seconds(value: Any) -> float:
    """A time limit of a policy, inf where there is none."""
    if value is None:
        return _INFINITE
    return (duration.parse(value) if isinstance(value, str) else float(value)) or _INFINITE


def status_of(handle: Handle, name: str, nodeid: int = 0) -> Any:
    """The call that asks for a queue's status; "" is the anonymous queue."""
    return handle.rpc("job-manager.queue-status", {"name": name} if name else {}, nodeid)
