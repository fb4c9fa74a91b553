"""Match policies: which of the resources that satisfy a request are taken.

Each policy is a file; `by_name` finds it by its name, which is Fluxion's where Fluxion has the policy.
"""

from __future__ import annotations

from headrace.sched.graph.policies import (
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
from headrace.sched.graph.policies.policy import Policy

_MODULES = (
    first,
    firstnodex,
    high,
    low,
    hinode,
    hinodex,
    lonode,
    lonodex,
    locality,
    variation,
)
POLICIES: dict[str, Policy] = {module.POLICY.name: module.POLICY for module in _MODULES}


# Attributes and their values as Fluxion's documentation and its command name them.
_ATTRIBUTES = {
    "policy": "policy",
    "high": "high",
    "low": "low",
    "node_centric": "node_centric",
    "node_exclusive": "node_exclusive",
    "stop_on_1_matches": "stops",
    "set_stop_on_1_matches": "stops",
}


def by_name(name: str) -> Policy:
    """The policy of a name, or of attributes such as `policy=high node_exclusive=true`.

    Raises ValueError listing the possible values.
    """
    if "=" in name:
        return _put_together(name)
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(POLICIES)}, not {name!r}") from None


def _put_together(text: str) -> Policy:
    given: set[str] = set()
    for item in text.split():
        name, _, value = item.partition("=")
        attribute = _ATTRIBUTES.get(name)
        if attribute is None or value not in (("low", "high") if name == "policy" else ("true", "false")):
            raise ValueError(
                f"{item!r}: must be policy=low|high (or low=true, high=true), node_centric=true|false, "
                "node_exclusive=true|false or stop_on_1_matches=true|false"
            )
        if value != "false":
            given.add(value if attribute == "policy" else attribute)
    if {"low", "high"} <= given:
        raise ValueError(f"{text!r}: must be either low or high")
    high = "high" in given
    whole = "node_exclusive" in given
    if high and "stops" in given:
        # The search visits the highest numbers first, so the first match is the highest.
        return POLICIES["firstnodex" if whole else "first"]
    if whole:
        return POLICIES["hinodex" if high else "lonodex"]
    if given & {"node_centric", "stops"}:
        return POLICIES["hinode" if high else "lonode"]
    return POLICIES["high" if high else "low"]


__all__ = ["POLICIES", "Policy", "by_name"]
