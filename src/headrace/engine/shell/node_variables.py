"""Environment variables with a different value on each node, such as a pod's index and address.

A job has the environment of its submission. If it was submitted on a node with such variables, its tasks get the values
of their own node instead, unless the submitter has changed them. The list of these variables, with the values of the
node on which a process runs, is an environment variable itself, so every job that is submitted there has it, also from
within a job. A process that was not started by the instance, for example by `kubectl exec`, has the variables but not
the list. Then all of its values are treated as the node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

VARIABLE = "HEADRACE_NODE_VARIABLES"


def listed(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The list as an environment variable: all of `names` that are in the node's `env`; {} if none are."""
    own = {name: env[name] for name in names if name in env}
    return {VARIABLE: msgspec.json.encode(own).decode()} if own else {}


def exchange(env: dict[str, str], node: Mapping[str, str]) -> None:
    """Replace variables of the node of submission in a job's `env` by the variables of `node`."""
    ours = _read(node.get(VARIABLE, ""))
    if not ours:
        return
    theirs = _read(env.get(VARIABLE, "")) or {name: env[name] for name in ours if name in env}
    for name, value in theirs.items():
        if env.get(name) == value:
            del env[name]
            if name in ours:
                env[name] = ours[name]
    env[VARIABLE] = node[VARIABLE]


def _read(text: str) -> dict[str, str]:
    """The variables of a list; {} for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
