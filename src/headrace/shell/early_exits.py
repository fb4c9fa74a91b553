"""Tasks that ended though others wait for them, which would be for ever.

A PMI barrier needs every task of its job, also one that ended between `init` and `finalize`; and the brokers of an
instance need their leader, task 0, from the exchange of their addresses until they have met it. `-o exit-timeout` is no
help: it is long, and the jobs of brokers, which may lose followers and go on, have none.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .job import ShellJob
    from .task import Task


class EarlyExits:
    """Of one job on one node. The lead shell tells the others, each thing once."""

    def __init__(self, job: ShellJob) -> None:
        self._job = job
        self._told: set[str] = set()

    def ended(self, task: Task, status: int) -> None:
        """A task of this node has ended."""
        job = self._job
        if job.size < 2:
            return
        brokers = job.are_brokers
        if (job.pmi is not None and job.pmi.left(task.local, brokers)) or (
            job.pmix is not None and job.pmix.left(task.rank)
        ):
            how = signal.strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else f"Exit {os.WEXITSTATUS(status)}"
            note = f"task {task.rank} (host {job.host}) ended ({how}) in PMI, where others wait for it in a barrier"
            self._tell({"kind": "left-pmi", "note": note})
        if brokers and task.rank == 0:
            self._tell({"kind": "leader-gone"})

    def excuses(self, status: int) -> bool:
        """Whether a task ended so because it was told to when its leader was gone: the job's status is the leader's."""
        told = "leader-gone" in self._told
        return told and status in (int(signal.SIGTERM), (128 + int(signal.SIGTERM)) << 8)

    def _tell(self, data: dict[str, Any]) -> None:
        if self._job.lead:
            self.told(data)
        else:
            self._job.to_peer(0, data)

    def told(self, data: dict[str, Any]) -> None:
        """Another shell says, or we say ourselves, that a task is gone."""
        job, kind = self._job, data["kind"]
        if kind in self._told:
            return
        self._told.add(kind)
        job.to_others(data)
        if kind == "leader-gone":
            # Brokers that know that they are over take no notice.
            job.kill(signal.SIGTERM)
        else:
            for offered in (job.pmi, job.pmix):
                if offered is not None:
                    offered.incomplete(data["note"])
