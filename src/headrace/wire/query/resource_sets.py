"""The instance's resources by state and queue, from `resource.sched-status` and the configuration.

`flux resource list` and `flux queue list` show the same sets: all, down, allocated, and those derived from them (up,
free). Each set can be restricted to the nodes of a queue.
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
    """The sets in the response to `call` (resource.sched-status), read on first use.

    Call `configure` with the configuration before asking for a queue's sets.
    """

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
        # The scheduler sends properties only with the set of all resources.
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
        """The number of nodes, cores or gpus (`nnodes`, `ncores`, `ngpus`) of a queue in a state."""
        return int(getattr(self.in_queue(state, queue), kind))


class Given:
    """A response that is already there, with the interface of a call."""

    def __init__(self, answer: Dict[str, Any]) -> None:
        self._answer = answer

    def get(self) -> Dict[str, Any]:
        return self._answer
