"""The broker's state machine: which states there are, what leads from one to the next, and who is waiting for it. Pure.

join → init → quorum → run → cleanup → shutdown → finalize → goodbye → exit, as Flux names them. A failure before `run`
skips what never started: `init` fails to `shutdown`, `quorum` to `shutdown`.
"""

from __future__ import annotations

STATES = ("none", "join", "init", "quorum", "run", "cleanup", "shutdown", "finalize", "goodbye", "exit")

_NEXT = {
    ("none", "builtins-success"): "join",
    ("join", "parent-none"): "init",
    ("join", "parent-ready"): "init",
    ("join", "parent-fail"): "shutdown",
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
    ("goodbye", "goodbye"): "exit",
}


def step(state: str, event: str) -> str:
    """The state after `event`; the same state when the event means nothing there."""
    return _NEXT.get((state, event), state)


def before(state: str, other: str) -> bool:
    """True when `state` comes earlier in a broker's life than `other`."""
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
