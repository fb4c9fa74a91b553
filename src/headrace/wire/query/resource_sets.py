"""The instance's resources by state and queue, from `resource.sched-status` and the configuration.

`flux resource list` and `flux queue list` show the same sets: all, down, allocated, and what follows from them
(up, free), each cut to the nodes of a queue by what the queue requires.
"""

from __future__ import annotations

from headrace.formats.spec.constraint import of_queue
from headrace.formats.spec.rset import ResourceSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.wire.client.handle import Rpc

STATES = ("all", "down", "allocated", "up", "free")


class SchedulerResources:
    """What `call` (of resource.sched-status) answers, read when it is needed. `configure` before asking by queue."""

    def __init__(self, call: Rpc | Given) -> None:
        self._call = call
        self._sets: Dict[str, ResourceSet] = {}
        self._config: Dict[str, Any] = {}
        self._cut: Dict[Any, ResourceSet] = {}

    def configure(self, config: Dict[str, Any]) -> None:
        self._config = config

    @property
    def queues(self) -> List[str]:
        return sorted(self._config.get("queues", {}))

    def _load(self) -> None:
        answer = self._call.get()
        for name in ("all", "down", "allocated"):
            self._sets[name] = ResourceSet.from_obj(answer[name]) if answer.get(name) else ResourceSet()
        everything = self._sets["all"]
        # The scheduler names properties once, on the whole set.
        for name in ("down", "allocated"):
            for key, ranks in everything.properties.items():
                shared = ranks & self._sets[name].ranks
                if shared:
                    self._sets[name] = self._sets[name].with_property(key, shared)
        self._sets["up"] = everything.diff(self._sets["down"])
        self._sets["free"] = self._sets["up"].diff(self._sets["allocated"])

    def state(self, name: str) -> ResourceSet:
        """The set of a state (one of STATES)."""
        if not self._sets:
            self._load()
        return self._sets[name]

    def in_queue(self, state: str, queue: str) -> ResourceSet:
        """The part of a state's set that belongs to a queue; all of it for the anonymous queue."""
        key = (state, queue)
        if key not in self._cut:
            self._cut[key] = self._select(self.state(state), self._config.get("queues", {}).get(queue, {}))
        return self._cut[key]

    def _select(self, found: ResourceSet, queue: Dict[str, Any]) -> ResourceSet:
        constraint = of_queue(queue)
        return found.select_constraint(constraint) if constraint else found

    def count(self, state: str, kind: str, queue: str) -> int:
        """How many nodes, cores or gpus (`nnodes`, `ncores`, `ngpus`) of a queue are in a state."""
        return int(getattr(self.in_queue(state, queue), kind))


class Given:
    """An answer that is there already, in the place of a call."""

    def __init__(self, answer: Dict[str, Any]) -> None:
        self._answer = answer

    def get(self) -> Dict[str, Any]:
        return self._answer
