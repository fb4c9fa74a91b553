"""The data of one instance in `flux top`, the selected queue and job, and their changes by keys.

No I/O here.
"""

from __future__ import annotations

from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.resource_sets import Given, SchedulerResources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NamedTuple, Optional, Sequence

    class Instance(NamedTuple):
        """Values that do not change; `expiration` (0 for none) and `started` are seconds since the epoch."""

        title: str
        size: int
        level: int
        version: str
        started: float
        expiration: float

    class Use(NamedTuple):
        """The numbers of all, used and down resources of a kind."""

        kind: str
        total: int
        used: int
        down: int

else:
    from collections import namedtuple

    Instance = namedtuple("Instance", "title size level version started expiration")
    Use = namedtuple("Use", "kind total used down")

_STATES = ("depend", "priority", "sched", "run", "cleanup", "inactive")
_RESULTS = ("successful", "failed", "canceled", "timeout")


class View:
    """One instance on the screen. With `ended_in_detail`, inactive jobs are counted as complete or failed.

    `stats`, `resources` and `jobs` are the last responses of job-list.job-stats, resource.sched-status and
    job-list.list.
    """

    def __init__(self, instance: Instance, config: Dict[str, Any], ended_in_detail: bool) -> None:
        self.instance = instance
        self._config = config
        queues: Sequence[str] = list(config.get("queues") or ())
        # The first element, "", stands for all queues.
        self._queues: List[str] = ["", *queues]
        self.queue = ""
        self.ended_in_detail = ended_in_detail
        self.heart = False
        self.message = ""
        self.stats: Dict[str, Any] = {}
        self.jobs: List[JobInfo] = []
        self._resources: Optional[SchedulerResources] = None
        # The id of the selected job, None before a selection.
        self.selected: Optional[int] = None

    @property
    def has_queues(self) -> bool:
        return len(self._queues) > 1

    def choose_queue(self, name: str) -> None:
        """Choose a queue. Raises ValueError if it is not configured."""
        if name not in self._queues[1:]:
            raise ValueError(f"queue {name} not configured")
        self.queue = name

    def set_resources(self, answer: Dict[str, Any]) -> None:
        self._resources = SchedulerResources(Given(answer))
        self._resources.configure(self._config)

    # -- values on the screen

    def counts(self) -> Dict[str, int]:
        """The numbers of jobs by state and result, in the chosen queue or in all."""
        found = self.stats
        if self.queue:
            named = [queue for queue in self.stats.get("queues", ()) if queue["name"] == self.queue]
            # A queue without any job so far has no statistics.
            found = named[0] if named else {}
        states = found.get("job_states", {})
        return {**{name: states.get(name, 0) for name in _STATES}, **{name: found.get(name, 0) for name in _RESULTS}}

    def pending(self) -> int:
        counts = self.counts()
        return counts["depend"] + counts["priority"] + counts["sched"]

    def running(self) -> int:
        counts = self.counts()
        return counts["run"] + counts["cleanup"]

    def unsuccessful(self) -> int:
        counts = self.counts()
        return counts["failed"] + counts["canceled"] + counts["timeout"]

    def uses(self) -> List[Use]:
        """The use of nodes, cores and GPUs in the chosen queue or in all."""
        found = []
        for kind in ("nodes", "cores", "gpus"):
            numbers = [
                self._resources.count(state, f"n{kind}", self.queue) if self._resources else 0
                for state in ("all", "allocated", "down")
            ]
            found.append(Use(kind, *numbers))
        return found

    def shown_jobs(self) -> List[JobInfo]:
        return [job for job in self.jobs if not self.queue or job.get("queue") == self.queue]

    def selected_job(self) -> Optional[JobInfo]:
        return next((job for job in self.shown_jobs() if job.id == self.selected), None)

    # -- keys

    def move(self, step: int) -> None:
        """Select the job `step` rows further down, wrapping around at both ends of the list."""
        jobs = self.shown_jobs()
        ids = [job.id for job in jobs]
        if not ids:
            return
        if self.selected in ids:
            self.selected = ids[(ids.index(self.selected) + step) % len(ids)]
        else:
            self.selected = ids[0] if step > 0 else ids[-1]

    def rotate(self, step: int) -> None:
        """Choose the queue `step` further, wrapping around; "all queues" is between the last and the first."""
        self.queue = self._queues[(self._queues.index(self.queue) + step) % len(self._queues)]
