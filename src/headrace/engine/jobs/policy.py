"""Policy (RFC 33): defaults and limits of jobspecs from `[policy]` and `[queues]`. Pure.

Ingest applies it to every submitted job. The job manager checks limits again when a guest updates a job. A queue's own
table overrides the general table, key by key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.formats.spec import duration as durations
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.constraint import ConstraintError, of_queue

_SIZES = ("nnodes", "ncores", "ngpus")


class PolicyError(ValueError):
    """A job requests more than its queue allows. The text names the request and the limit."""


class UnknownQueue(ValueError):
    """A job names a queue that is not configured."""


class PolicyConfigError(ValueError):
    """An invalid policy in the configuration. The text has the key and the expected value."""


class Limits(NamedTuple):
    """Limits of one queue: seconds (0: none), and sizes by name (-1: none)."""

    duration: float
    max: dict[str, int]
    min: dict[str, int]


class Queue(NamedTuple):
    """The effects of one queue on a jobspec."""

    name: str
    duration: float
    limits: Limits
    constraint: dict[str, Any] | None


class Policy:
    """The policy of a configuration. Raises PolicyConfigError."""

    def __init__(self, config: dict[str, Any]) -> None:
        general = _table(config, "policy", "policy")
        queues = _table(config, "queues", "queues")
        self.default_queue = _text(general, "jobspec.defaults.system.queue", "policy")
        self.queues: dict[str, Queue] = {}
        for name in queues:
            table = _table(queues, name, f"queues.{name}")
            own = _table(table, "policy", f"queues.{name}.policy")
            self.queues[name] = _queue(name, own, general, table)
        if not queues:
            self.queues[""] = _queue("", {}, general, {})
        if self.default_queue and self.default_queue not in queues:
            raise PolicyConfigError(
                f"policy.jobspec.defaults.system.queue: {self.default_queue!r} is not one of [queues]"
            )

    @property
    def names(self) -> list[str]:
        return [name for name in self.queues if name]

    def updates(self, jobspec: dict[str, Any]) -> dict[str, Any]:
        """The missing parts of a jobspec: {"attributes.system.KEY": value}.

        Raises UnknownQueue, or PolicyError if a queue is named and none is configured. Flux distinguishes these two as
        well.
        """
        system = js.system(jobspec)
        out: dict[str, Any] = {}
        name = system.get("queue")
        if name is None and self.default_queue:
            name = out["attributes.system.queue"] = self.default_queue
        # The empty name is internal: it stands for the only queue of an instance without named queues.
        queue = None if name == "" else self.queues.get(name or "")
        if queue is None:
            if name is not None and not self.names:
                raise PolicyError(f"'{name}' is not a valid queue")
            if name is not None:
                raise UnknownQueue(f"Invalid queue '{name}' specified")
            raise UnknownQueue("no queue specified, and there is no default queue")
        if queue.duration and not system.get("duration"):
            out["attributes.system.duration"] = queue.duration
        if queue.constraint is not None:
            own = system.get("constraints")
            out["attributes.system.constraints"] = {"and": [own, queue.constraint]} if own else queue.constraint
        return out

    def constraint_for(self, constraint: dict[str, Any] | None, old: str, new: str) -> dict[str, Any] | None:
        """The constraint of a job that changes its queue. Raises UnknownQueue."""
        if new not in self.queues:
            raise UnknownQueue(f"Invalid queue '{new}' specified")
        before = self.queues[old].constraint if old in self.queues else None
        own = constraint
        if before is not None:
            if constraint == before:
                own = None
            elif constraint and constraint.get("and", [])[1:] == [before]:
                own = constraint["and"][0]
        after = self.queues[new].constraint
        if after is None:
            return own
        return {"and": [own, after]} if own else after

    def check(self, jobspec: dict[str, Any]) -> None:
        """Raise PolicyError if a jobspec (with its defaults) exceeds a limit of its queue."""
        system = js.system(jobspec)
        queue = self.queues.get(system.get("queue") or "")
        if queue is None:
            return
        limits = queue.limits
        where = f" for queue {queue.name}" if queue.name else ""
        if limits.duration:
            self.check_duration(float(system.get("duration") or 0.0), queue.name)
        if not limits.max and not limits.min:
            return
        counts = js.counts(jobspec)
        for kind in _SIZES:
            count = getattr(counts, kind)
            most, least = limits.max.get(kind, -1), limits.min.get(kind, -1)
            if 0 <= most < count:
                raise PolicyError(f"requested {kind} ({count}) exceeds policy limit of {most}{where}")
            if count < least and not (kind == "nnodes" and count == 0):
                raise PolicyError(f"requested {kind} ({count}) is under policy limit of {least}{where}")

    def check_duration(self, seconds: float, name: str) -> None:
        """Raise PolicyError if a time limit (0: none) exceeds that of queue `name`."""
        queue = self.queues.get(name)
        most = queue.limits.duration if queue is not None else 0.0
        if not most or 0 < seconds <= most:
            return
        where = f" for queue {name}" if name else ""
        wanted = durations.encode(seconds) if seconds else "unlimited"
        raise PolicyError(f"requested duration ({wanted}) exceeds policy limit of {durations.encode(most)}{where}")


def _queue(name: str, own: dict[str, Any], general: dict[str, Any], table: dict[str, Any]) -> Queue:
    where = f"queues.{name}.policy" if name else "policy"
    if _find(own, "jobspec.defaults.system.queue") is not None:
        raise PolicyConfigError(f"{where}.jobspec.defaults.system.queue: only [policy] can name the default queue")
    for key in ("allow-user", "allow-group"):
        names = _find(own if name else general, f"access.{key}")
        if names is not None and not (isinstance(names, list) and all(isinstance(item, str) for item in names)):
            raise PolicyConfigError(f"{where}.access.{key}: must be an array of names, not {names!r}")
    for table_path in ("jobspec", "limits", "limits.job-size", "access"):
        inner = _find(own if name else general, table_path)
        if inner is not None and not isinstance(inner, dict):
            raise PolicyConfigError(f"{where}.{table_path}: must be a table, not {inner!r}")
    try:
        constraint = of_queue(table, f"queues.{name}")
    except ConstraintError as exc:
        raise PolicyConfigError(str(exc)) from None
    seconds = _duration(own, general, "jobspec.defaults.system.duration", where)
    sizes = [
        {kind: _size(own, general, f"limits.job-size.{edge}.{kind}", where) for kind in _SIZES}
        for edge in ("max", "min")
    ]
    high, low = ({kind: size for kind, size in table.items() if size >= 0} for table in sizes)
    return Queue(name, seconds, Limits(_duration(own, general, "limits.duration", where), high, low), constraint)


def _find(table: dict[str, Any], path: str) -> Any:
    here: Any = table
    for key in path.split("."):
        if not isinstance(here, dict):
            return None
        here = here.get(key)
    return here


def _either(own: dict[str, Any], general: dict[str, Any], path: str) -> Any:
    value = _find(own, path)
    return _find(general, path) if value is None else value


def _duration(own: dict[str, Any], general: dict[str, Any], path: str, where: str) -> float:
    value = _either(own, general, path)
    if value is None:
        return 0.0
    if not isinstance(value, str):
        raise PolicyConfigError(f"{where}.{path}: must be a duration in quotes such as '1h', not {value!r}")
    try:
        seconds = durations.parse(value)
    except ValueError as exc:
        raise PolicyConfigError(f"{where}.{path}: {exc}") from None
    return 0.0 if seconds == float("inf") else seconds


def _size(own: dict[str, Any], general: dict[str, Any], path: str, where: str) -> int:
    value = _either(own, general, path)
    if value is None or value == -1:
        return -1
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PolicyConfigError(f"{where}.{path}: must be a number of 0 or more, or -1 for no limit, not {value!r}")
    return value


def _text(table: dict[str, Any], path: str, where: str) -> str:
    value = _find(table, path)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PolicyConfigError(f"{where}.{path}: must be a string, not {value!r}")
    return value


def _table(table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise PolicyConfigError(f"{where}: must be a table, not {value!r}")
    return value
