"""`flux.queue`: queues with their state, limits and resources, as in `flux queue list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional

from flux.resource.list import SchedResourceList, resource_list
from headrace.formats.spec.constraint import of_queue
from headrace.wire.query.queue_policy import policy_value, seconds

if TYPE_CHECKING:
    from flux.core.handle import Flux

_INFINITE = float("inf")
_KINDS = ("nnodes", "ncores", "ngpus")


class _Sizes:
    """`nnodes`, `ncores` and `ngpus` of a job."""

    def __init__(self, sizes: Dict[str, float]) -> None:
        for kind in _KINDS:
            setattr(self, kind, sizes[kind])


class QueueLimits:
    """`timelimit` (also `duration`) in seconds, and the sizes of jobs, `min` and `max`; inf for no limit."""

    def __init__(self, timelimit: float, least: Dict[str, float], most: Dict[str, float]) -> None:
        self.timelimit = self.duration = timelimit
        self.min = _Sizes(least)
        self.max = _Sizes(most)


class QueueDefaults:
    """`timelimit` in seconds of a job without one; inf for no limit."""

    def __init__(self, timelimit: float) -> None:
        self.timelimit = timelimit


class QueueInfo:
    """A queue; the `name` of the anonymous queue is "".

    `enabled`, `started` and `default` (also `is_default`) are booleans. `limits`, `defaults` and `resources` (`all`,
    `up`, `down`, `allocated`, `free`) are objects.

    A queue is made from an instance's configuration and resources, so a program can also use those of another instance.
    With a `parent`, it is a virtual queue (RFC 33): it has the parent's resources, and the parent's limits and defaults
    unless it has its own. Raises ValueError for a parent that is not configured.
    """

    def __init__(
        self,
        name: str,
        config: Dict[str, Any],
        resources: SchedResourceList,
        enabled: bool,
        started: bool,
        default: bool,
        parent: Optional[str] = None,
    ) -> None:
        self.name = name
        self.enabled, self.started = enabled, started
        self.default = self.is_default = default
        self.parent = parent
        queues = config.get("queues", {})
        tables = [queues.get(name, {}) if name else {}]
        if parent is not None:
            if parent not in queues:
                raise ValueError(f"queue {name}: parent queue '{parent}' is not configured")
            tables.append(queues[parent])
        policies = [*(table.get("policy", {}) for table in tables), config.get("policy", {})]
        constraint = of_queue(tables[-1])
        self.resources = resources.copy_constraint(constraint) if constraint else resources
        self.defaults = QueueDefaults(seconds(policy_value(policies, "jobspec", "defaults", "system", "duration")))
        least = {kind: policy_value(policies, "limits", "job-size", "min", kind) or 0 for kind in _KINDS}
        most = {kind: policy_value(policies, "limits", "job-size", "max", kind) for kind in _KINDS}
        # In the configuration, -1 means no limit.
        self.limits = QueueLimits(
            seconds(policy_value(policies, "limits", "duration")),
            {kind: max(0, size) for kind, size in least.items()},
            {kind: _INFINITE if size in (None, -1) else size for kind, size in most.items()},
        )


class QueueList:
    """All queues of an instance, or the named ones; access them by `[name]`, attribute, or iteration.

    Raises ValueError for an unknown name.
    """

    def __init__(self, handle: Flux, queues: Optional[Iterable[str]] = None) -> None:
        config = handle.rpc("config.get").get() or {}
        resources = resource_list(handle).get()
        known = sorted(config.get("queues", {})) or [""]
        names: List[str] = list(queues or known)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"No such queue: {', '.join(unknown)}")
        default = config.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {}).get("queue", "")
        calls = {name: handle.rpc("job-manager.queue-status", {"name": name} if name else {}) for name in names}
        self._queues: Dict[str, QueueInfo] = {}
        for name, call in calls.items():
            status = call.get()
            self._queues[name] = QueueInfo(
                name, config, resources, status["enable"], status["start"], name in ("", default)
            )

    def __iter__(self) -> Iterator[QueueInfo]:
        return iter(self._queues.values())

    def __getitem__(self, name: str) -> QueueInfo:
        return self._queues[name]

    def __getattr__(self, name: str) -> QueueInfo:
        try:
            return self._queues[name]
        except KeyError:
            raise AttributeError(f"no queue has the name {name!r}") from None
