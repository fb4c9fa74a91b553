"""PMI-1 and PMIx for one job's tasks on this node, and the barriers in which shells exchange data.

PMI-1 barriers have the sequence numbers 0, 1, 2 ..., PMIx barriers have -1, -2, -3 ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from . import options as known
from .pmi import PmiServer
from .pmix.offer import Offer

if TYPE_CHECKING:
    from .host import Job
    from .layout import Layout
    from .task import Task


class PmiServices:
    """PMI services for the tasks of one node: `simple` is PMI-1, `pmix` is PMIx; None if not offered."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.simple: PmiServer | None = None
        self.pmix: Offer | None = None
        self._barrier = 0

    def offer(self, placed: Layout, f58: str, warn: Callable[[str], None]) -> None:
        """Prepare the services in the option `pmi`. `warn` is called if PMIx cannot be offered."""
        if not placed.ranks:
            return
        job = self._job
        methods = known.pmi_methods(job.options)
        if "simple" in methods:
            preset = placed.pmi if known.pmi_map(job.options) else {}
            # The tasks may be brokers of an instance, which is one level below this instance, as in Flux.
            preset = {**preset, "flux.instance-level": str(job.op["instance_level"] + 1)}
            if "interface_hint" in job.op:
                preset["flux.tbon-interface-hint"] = job.op["interface_hint"]
            abort = lambda local, code, text: job.abort(placed.ranks[local], code, text)  # noqa: E731
            fail = partial(job.fail, code=1, component="pmi")
            self.simple = PmiServer(f58, placed.size, len(placed.ranks), preset, self.enter_barrier, abort, fail)
        # PMIx is not offered to brokers if PMI-1 is offered, because they use PMI-1.
        if "pmix" in methods and not (self.simple is not None and job.are_brokers):
            try:
                self.pmix = Offer(job, placed.map)
            except OSError as exc:
                warn(f"tasks have no PMIx: {exc.strerror}")

    def enter_barrier(self, kvs: dict[str, str]) -> None:
        """Enter the next barrier of this job. With `-o torch`, the first one precedes the tasks' start."""
        if self._job.nnodes == 1:
            assert self.simple is not None
            self.simple.complete(kvs)
            return
        self._job.reports.barrier(self._barrier, kvs)
        self._barrier += 1

    def barrier_done(self, seq: int, kvs: Mapping[str, str]) -> None:
        """Complete barrier `seq`, which all nodes have entered. `kvs` has the pairs of all nodes."""
        if seq < 0 and self.pmix is not None:
            self.pmix.barrier_done(kvs)
        elif seq >= 0 and self.simple is not None:
            self.simple.complete(kvs)

    def from_peer(self, source: int, message: dict[str, Any]) -> None:
        """Handle a PMIx message of the shell on node `source`."""
        if self.pmix is not None:
            self.pmix.from_peer(source, message)

    def is_awaited(self, task: Task) -> bool:
        """True if other tasks may wait in a barrier for the ended `task`."""
        if self.simple is not None and self.simple.is_awaited(task.local, by_default=self._job.are_brokers):
            return True
        return self.pmix is not None and self.pmix.is_used_by(task.rank)

    def block(self, reason: str) -> None:
        """Mark barriers as unable to complete, for this reason. The job fails once a task waits in one."""
        for service in (self.simple, self.pmix):
            if service is not None:
                service.block(reason)

    def end(self) -> None:
        """Stop the services, since the tasks of the job on this node have ended."""
        if self.pmix is not None:
            self.pmix.end()
