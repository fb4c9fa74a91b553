"""The queue policies, one file each, named as Fluxion names them."""

from __future__ import annotations

from headrace.sched.queueing.policies import conservative, easy, fcfs, hybrid
from headrace.sched.queueing.policies.policy import QueuePolicy

POLICIES: dict[str, QueuePolicy] = {module.POLICY.name: module.POLICY for module in (fcfs, easy, hybrid, conservative)}


def by_name(name: str) -> QueuePolicy:
    """The policy called `name`. Raises ValueError listing the names there are."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"queue policy {name!r}: must be one of {', '.join(POLICIES)}") from None


__all__ = ["POLICIES", "QueuePolicy", "by_name"]
