"""Which data of jobs were committed to the KVS, over what the job store has; pure.

The job store is the home of jobspec, R and eventlog, and the KVS lays over them what a client commits below a job's
directory (RFC 16). The job-info service must know of such keys, because it reads the job store directly. The job's
own namespace, `guest`, is not among them: job-info asks the KVS for what the job store lacks there.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.modules.kvs.tree import Dir
from headrace.modules.kvs.txn import Op
from headrace.modules.kvs.walk import split_key

# Components of the path of a job's directory: "job", and four groups of hex digits.
_DEPTH = 5


def touched(ops: Iterable[Op]) -> dict[str, bool]:
    """The keys of job data that `ops` change, and whether each has a value of its own in the KVS afterwards."""
    keys = {}
    for op in ops:
        if op.key.lstrip(".").startswith("job."):
            names = split_key(op.key)
            if len(names) == _DEPTH + 1 and names[-1] != "guest":
                keys[".".join(names)] = op.node is not None
    return keys


def committed(root: Dir) -> dict[str, bool]:
    """The keys of job data that the primary namespace has at `root`, each with True.

    Directories that only the content store has are not looked into.
    """
    level: list[tuple[str, object]] = [("job", root.entries.get("job"))]
    for _ in range(_DEPTH):
        level = [
            (f"{path}.{name}", entry)
            for path, node in level
            if isinstance(node, Dir)
            for name, entry in node.entries.items()
        ]
    return {path: True for path, _entry in level if not path.endswith(".guest")}
