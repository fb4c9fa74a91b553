"""The broker's state machine: which states there are, what leads from one to the next, and who is waiting for it. Pure.

They have the names and numbers of Flux. A failure before `run` skips what never started: `init` fails to `shutdown`,
`quorum` to `shutdown`. Two are passed at once here: the broker's own services are there before its loop runs and end
with it, and each broker has read its configuration before it joins, so `config-sync` takes time only where the leader's
was changed since.
"""

from __future__ import annotations

# A state's number is its place here (`state-machine.monitor`).
STATES = (
    "load-builtins",
    "join",
    "config-sync",
    "init",
    "quorum",
    "run",
    "cleanup",
    "shutdown",
    "finalize",
    "goodbye",
    "unload-builtins",
    "exit",
)

_NEXT = {
    ("load-builtins", "builtins-success"): "join",
    ("load-builtins", "builtins-fail"): "exit",
    ("join", "parent-none"): "config-sync",
    ("join", "parent-ready"): "config-sync",
    ("join", "parent-fail"): "shutdown",
    ("join", "shutdown"): "shutdown",
    ("config-sync", "sync-none"): "init",
    ("config-sync", "sync-success"): "init",
    ("config-sync", "shutdown"): "shutdown",
    ("init", "rc1-none"): "quorum",
    ("init", "rc1-success"): "quorum",
    ("init", "rc1-fail"): "shutdown",
    ("quorum", "quorum-full"): "run",
    ("quorum", "quorum-fail"): "shutdown",
    ("quorum", "shutdown"): "shutdown",
    ("run", "rc2-success"): "cleanup",
    ("run", "rc2-fail"): "cleanup",
    ("run", "shutdown"): "cleanup",
    ("cleanup", "cleanup-none"): "shutdown",
    ("cleanup", "cleanup-success"): "shutdown",
    ("cleanup", "cleanup-fail"): "shutdown",
    ("shutdown", "children-complete"): "finalize",
    ("shutdown", "children-none"): "finalize",
    ("shutdown", "shutdown-timeout"): "finalize",
    ("finalize", "rc3-none"): "goodbye",
    ("finalize", "rc3-success"): "goodbye",
    ("finalize", "rc3-fail"): "goodbye",
    ("goodbye", "goodbye"): "unload-builtins",
    ("unload-builtins", "builtins-done"): "exit",
}


def step(state: str, event: str) -> str:
    """The state after `event`; the same state for an event without effect in it."""
    if event == "parent-lost" and before(state, "finalize"):
        # Its jobs are lost with its instance: a follower removes its modules, from whatever state.
        return "finalize"
    return _NEXT.get((state, event), state)


def before(state: str, other: str) -> bool:
    """Whether `state` comes earlier in a broker's life than `other`."""
    return STATES.index(state) < STATES.index(other)


def quorum_size(text: str, size: int) -> int:
    """`broker.quorum` as a number of brokers, all when it is not set. Raises ValueError.

    Sets of ranks are what older configurations have: "0" and all ranks are understood.
    """
    if text in ("", f"0-{size - 1}"):
        return size
    if text == "0":
        return 1
    if text.isascii() and text.isdigit() and 1 <= int(text[:7]) <= size:
        return int(text)
    raise ValueError(f"Error parsing broker.quorum attribute: '{text}' is no number from 1 to {size}, the brokers")
