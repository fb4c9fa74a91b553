"""Variables of which each node has a value of its own, such as a pod's index and address.

A job has the environment of its submission. Where that is of a node with such variables, tasks get those of their own
node instead, unless the submitter has changed them. The list of them, with the values of the node where a process runs,
is a variable itself, so that it comes with every job that is submitted there, also from within a job. A process that
was not started by the instance, such as one of `kubectl exec`, has the variables without the list: then all are the
node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

VARIABLE = "HEADRACE_NODE_VARIABLES"


def listed(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The list, as a variable, of those of `names` that `env`, which is a node's, has; {} if there is none."""
    own = {name: env[name] for name in names if name in env}
    return {VARIABLE: msgspec.json.encode(own).decode()} if own else {}


def exchange(env: dict[str, str], node: Mapping[str, str]) -> None:
    """Replace in `env`, a job's, the variables of the node of its submission by those of `node`."""
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
