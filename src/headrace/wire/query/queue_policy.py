"""Values of the policies of queues (RFC 33): a queue's own, else those for all queues."""

from __future__ import annotations

from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

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
