"""The queue-driven size of a MiniCluster (`spec.autoscale`). Pure."""

from __future__ import annotations


def wanted_size(
    size: int, smallest: int, largest: int, demand: int, idle_since: float | None, idle_seconds: float, now: float
) -> tuple[int, float | None]:
    """The size that a MiniCluster of `size` pods should have, and when it may change without another event (None:
    never).

    `demand` is the number of its pods that the active jobs (pending and running) need. The size grows at once to that
    number; it shrinks to `smallest` when no job has been active for `idle_seconds`. While jobs are active it does not
    shrink, since the scheduler decides which nodes become idle first, and every pod costs a start.
    """
    smallest = max(smallest, 1)
    if demand > size:
        return min(demand, max(largest, size)), None
    if demand or idle_since is None or size <= smallest:
        return max(size, smallest), None
    until = idle_since + idle_seconds
    return (smallest, None) if now >= until else (size, until)
