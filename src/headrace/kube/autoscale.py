"""The queue-driven size of a MiniCluster (`spec.autoscale`). Pure."""

from __future__ import annotations


def wanted_size(
    size: int, smallest: int, largest: int, demand: int, idle_since: float | None, idle_seconds: float, now: float
) -> tuple[int, float | None]:
    """The size that a MiniCluster of `size` pods should have, and when that may change without news (None: it cannot).

    `demand` is the number of nodes that the active jobs (queued and running) want. It grows at once to what they want;
    it shrinks to `smallest` when no job has been active for `idle_seconds`. While jobs are active it keeps its size:
    which nodes fall idle first is the scheduler's choice, and pods that come and go cost a start each.
    """
    smallest = max(smallest, 1)
    if demand > size:
        return min(demand, max(largest, size)), None
    if demand or idle_since is None or size <= smallest:
        return max(size, smallest), None
    until = idle_since + idle_seconds
    return (smallest, None) if now >= until else (size, until)
