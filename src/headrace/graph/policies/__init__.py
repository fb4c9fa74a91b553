"""Match policies: which of the resources that fit is taken.

One file each; `by_name` finds them as Fluxion names them.
"""

from __future__ import annotations

from headrace.graph.policies import (
    first,
    firstnodex,
    high,
    hinode,
    hinodex,
    locality,
    lonode,
    lonodex,
    low,
    variation,
)
from headrace.graph.policies.policy import Policy

_MODULES = (first, firstnodex, high, low, hinode, hinodex, lonode, lonodex, locality, variation)
POLICIES: dict[str, Policy] = {module.POLICY.name: module.POLICY for module in _MODULES}


def by_name(name: str) -> Policy:
    """The policy called `name`. Raises ValueError listing the names there are."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"match policy {name!r}: must be one of {', '.join(POLICIES)}") from None


__all__ = ["POLICIES", "Policy", "by_name"]
