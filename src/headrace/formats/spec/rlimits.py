"""Resource limits that a job inherits from its submitter, and the ``--rlimit`` rules to change them.

Limits are stored in a jobspec as the shell option ``rlimit``, which maps names to soft limits (-1: unlimited).
"""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Sequence

# In the order in which Flux writes them. Other limits (pending signals, memlock) belong to the machine, not the job.
PROPAGATED = ("cpu", "fsize", "data", "stack", "core", "nofile", "as", "rss", "nproc")


def known() -> Dict[str, int]:
    """Return the ``resource.RLIMIT_`` constants of this platform by lower-case name."""
    prefix = "RLIMIT_"
    return {name[len(prefix) :].lower(): getattr(resource, name) for name in dir(resource) if name.startswith(prefix)}


def collect(rules: Sequence[str] = ()) -> Dict[str, int]:
    """Return the limits for a job: this process's soft limits, changed by rules in their order.

    ``-PATTERN`` removes matching limits, ``NAME=VALUE`` (a number, ``unlimited``, ``infinity`` or ``inf``) sets a
    limit, ``PATTERN`` copies the current value of every matching limit. A pattern is a shell glob. A text may contain
    several rules, separated by commas. Raises ValueError.
    """
    constants = known()
    limits = {name: _current(constants[name]) for name in PROPAGATED if name in constants}
    for rule in (part for given in rules for part in given.split(",")):
        if rule.startswith("-"):
            for name in _matching(rule[1:], constants, rule):
                limits.pop(name, None)
        elif "=" in rule:
            name, _, value = rule.partition("=")
            if name not in constants:
                raise ValueError(f"--rlimit: Invalid rlimit '{name}'; known are {', '.join(sorted(constants))}")
            limits[name] = _parse(value, rule)
        else:
            for name in _matching(rule, constants, rule):
                limits[name] = _current(constants[name])
    return limits


def _current(constant: int) -> int:
    soft, _ = resource.getrlimit(constant)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _matching(pattern: str, constants: Dict[str, int], rule: str) -> Sequence[str]:
    import fnmatch

    names = fnmatch.filter(constants, pattern.lower())
    if not names:
        raise ValueError(f"--rlimit: '{rule}' matches no limit; known are {', '.join(sorted(constants))}")
    return names


def _parse(value: str, rule: str) -> int:
    if value in {"unlimited", "infinity", "inf"}:
        return -1
    if value.isdecimal():
        return int(value)
    raise ValueError(f"--rlimit: Invalid value in {rule}: use a number or unlimited")
