"""Job data that clients have committed to the KVS, which take precedence over the job store's; pure.

The job store has jobspec, R and eventlog of each job, and the KVS shows what a client commits below a job's directory
(RFC 16) in their place. The job-info service reads the job store directly, so it must know these keys. Keys of the
job's own namespace, `guest`, are not among them: job-info requests these from the KVS if the job store lacks them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.modules.kvs.tree import Dir
from headrace.modules.kvs.txn import Op
from headrace.modules.kvs.walk import split_key

# The number of components of a job directory's path: "job", and four groups of hex digits.
_DEPTH = 5


def touched(ops: Iterable[Op]) -> dict[str, bool]:
    """The keys of job data that `ops` change, each with whether it has a committed value afterwards."""
    keys = {}
    for op in ops:
        if op.key.lstrip(".").startswith("job."):
            names = split_key(op.key)
            if len(names) == _DEPTH + 1 and names[-1] != "guest":
                keys[".".join(names)] = op.node is not None
    return keys


def committed(root: Dir) -> dict[str, bool]:
    """The keys of job data with committed values in the primary namespace at `root`, each with True.

    Directories that are not in memory are skipped.
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
