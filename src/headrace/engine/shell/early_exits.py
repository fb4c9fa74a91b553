"""Tasks that exit early, while other tasks wait for them.

A PMI barrier needs every task of the job, so a task that exits between `init` and `finalize` would block it for ever.
The brokers of an instance need their leader, task 0, until they have joined it. `-o exit-timeout` does not end these
waits in time: it is long, and jobs of brokers have none, since an instance may lose followers and continue.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from headrace.formats.spec.wait_status import exit_code, how_ended

if TYPE_CHECKING:
    from .host import Job
    from .task import Task


class EarlyExits:
    """The early exits of one job, seen from one node. The lead shell reports each kind to the other shells once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # The kinds of early exit that have been reported.
        self._reported: set[str] = set()

    def ended(self, task: Task, status: int) -> None:
        """A task of this node has ended."""
        job = self._job
        if job.size < 2:
            return
        if job.pmi.is_awaited(task):
            how = how_ended(status)
            note = f"task {task.rank} (host {job.host}) ended ({how}) in PMI, where others wait for it in a barrier"
            self._report({"kind": "left-pmi", "note": note})
        if job.are_brokers and task.rank == 0:
            self._report({"kind": "leader-gone"})

    def excuses(self, status: int) -> bool:
        """True if a task ended by the SIGTERM that followed the end of the leader: the job has the leader's status."""
        return "leader-gone" in self._reported and exit_code(status) == 128 + signal.SIGTERM

    def _report(self, data: dict[str, Any]) -> None:
        if self._job.lead:
            self.receive(data)
        else:
            self._job.reports.to_peer(0, data)

    def receive(self, data: dict[str, Any]) -> None:
        """A shell of the job, perhaps this one, reports an early exit."""
        job, kind = self._job, data["kind"]
        if kind in self._reported:
            return
        self._reported.add(kind)
        job.reports.to_others(data)
        if kind == "leader-gone":
            # Brokers that are shutting down already ignore this signal.
            job.kill(signal.SIGTERM)
        else:
            job.pmi.block(data["note"])
