"""`flux.job.stats.JobStats`: the numbers of jobs by state and result, of one queue or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from flux.rpc import RPC
from headrace.formats.spec.job_state import STATE_BITS, STATE_MASKS

if TYPE_CHECKING:
    from flux.core.handle import Flux

_RESULTS = ("successful", "failed", "canceled", "timeout", "inactive_purged")


class JobStats:
    """Counts as attributes: those of job-list.job-stats, and the sums `pending`, `running` and `active`.

    All are -1 until `update_sync` returns, or until the callback of `update`.
    """

    def __init__(self, handle: Flux, queue: Optional[str] = None) -> None:
        self.handle = handle
        self.queue = queue
        for name in (*STATE_BITS, *_RESULTS, *STATE_MASKS):
            setattr(self, name, -1)

    def update_sync(self) -> JobStats:
        """Request the counts and wait for them. Raises ValueError if there is no such queue."""
        self._take(self._ask().get())
        return self

    def update(self, callback: Optional[Callable[..., Any]] = None, *args: Any, **kwargs: Any) -> None:
        """Request the counts; the reactor then calls `callback(self, ...)`."""

        def answered(rpc: Any) -> None:
            self._take(rpc.get())
            if callback is not None:
                callback(self, *args, **kwargs)

        self._ask().then(answered)

    def _ask(self) -> RPC:
        return RPC(self.handle, "job-list.job-stats", {})

    def _take(self, answer: Dict[str, Any]) -> None:
        if self.queue is not None:
            found = [queue for queue in answer.get("queues", []) if queue.get("name") == self.queue]
            if not found:
                raise ValueError(f"no stats available for queue {self.queue}")
            answer = found[0]
        for name in STATE_BITS:
            setattr(self, name, answer["job_states"][name])
        for name in _RESULTS:
            setattr(self, name, answer[name])
        states = answer["job_states"]
        self.pending = states["depend"] + states["priority"] + states["sched"]
        self.running = states["run"] + states["cleanup"]
        self.active = self.pending + self.running
