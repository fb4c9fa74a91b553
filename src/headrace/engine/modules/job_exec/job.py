"""The execution service's data on one job, from its start request to its final release."""

from __future__ import annotations

from typing import Any

from headrace.engine.modules.job_exec.simulation import Simulation
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message


class Job:
    """One job, with its ranks in ascending order."""

    __slots__ = (
        "critical",
        "doomed",
        "doomed_at",
        "failed",
        "id",
        "kills",
        "msg",
        "ranks",
        "requeues_left",
        "running",
        "runs_again",
        "sim",
        "start_failure",
        "timer",
        "userid",
    )

    def __init__(self, id: int, userid: int, msg: Message, ranks: list[int]) -> None:
        self.id = id
        self.userid = userid
        # The start request, which gets responses until the job is over.
        self.msg = msg
        self.ranks = ranks
        # Nodes (by index in the job) whose loss ends the job; None for all of them.
        self.critical: Idset | None = None
        self.running = False
        self.failed = False
        # How often the job may still be queued again after the loss of a node, None if it does not ask for that; and
        # whether it has lost one and will be queued again.
        self.requeues_left: int | None = None
        self.runs_again = False
        # The signal that was sent to end it, 0 for none.
        self.doomed = 0
        # When that was, in monotonic seconds.
        self.doomed_at = 0.0
        self.kills = 0
        # The largest wait status of the shells that could not start their tasks. The job ends with it, as its other
        # tasks are killed for it.
        self.start_failure = 0
        self.sim: Simulation | None = None
        self.timer: Any = None
