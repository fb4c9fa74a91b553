"""The broker's state machine: its states, and the events that lead from one to the next. Pure.

States have the names and numbers of Flux. A failure in `init` or `quorum` leads to `shutdown`, not to `cleanup`, as
the initial program was not started. The states `load-builtins` and `unload-builtins` take no time, because the broker's
own services start before its loop runs and end with it. `config-sync` takes no time either, unless the leader's
configuration has changed since the leader started: each broker reads its configuration before it joins.
"""

from __future__ import annotations

# A state's number is its index here (`state-machine.monitor`).
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
    """The state after `event`, or the same state if the event has no effect in it."""
    if event == "parent-lost" and before(state, "finalize"):
        # A follower's jobs are lost with the instance, so it removes its modules at once, whatever its state.
        return "finalize"
    return _NEXT.get((state, event), state)


def before(state: str, other: str) -> bool:
    """True if `state` comes before `other` in a broker's life."""
    return STATES.index(state) < STATES.index(other)


def quorum_size(text: str, size: int) -> int:
    """The number of brokers in `broker.quorum`; all brokers if it is not set. Raises ValueError.

    Older configurations have sets of ranks: "0" and the set of all ranks are accepted.
    """
    if text in ("", f"0-{size - 1}"):
        return size
    if text == "0":
        return 1
    if text.isascii() and text.isdigit() and 1 <= int(text[:7]) <= size:
        return int(text)
    raise ValueError(
        f"Error parsing broker.quorum attribute: '{text}' is not a number from 1 to {size}, the number of brokers"
    )
