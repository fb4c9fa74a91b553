"""The job manager's queues (RFC 33): their names, and whether they accept and schedule jobs. No I/O.

Without a `[queues]` table there is one anonymous queue, named "". As in flux-core, named queues are initially stopped
and the anonymous queue is initially started. An administrator's changes survive a restart by default.
"""

from __future__ import annotations

from typing import Any

ANONYMOUS = ""
_BY_ADMINISTRATOR = "disabled by administrator"


class QueueError(ValueError):
    """A request names an unknown queue, or no queue where a name is required."""


class Queue:
    """The settings of one queue; a reason is None if none was given."""

    __slots__ = ("disable_reason", "enabled", "saved_enable", "saved_start", "started", "stop_reason")

    def __init__(self, started: bool) -> None:
        self.enabled = True
        self.disable_reason: str | None = None
        self.started = started
        self.stop_reason: str | None = None
        # The settings that a restart restores, each with its reason: the last ones set with `checkpoint`.
        self.saved_enable: tuple[bool, str | None] = (True, None)
        self.saved_start: tuple[bool, str | None] = (started, None)


class Queues:
    """All queues of an instance."""

    def __init__(self, names: list[str]) -> None:
        self.named = bool(names)
        self.table: dict[str, Queue] = {}
        self.configure(names)

    def configure(self, names: list[str]) -> list[str]:
        """Set the queue names; queues that remain keep their settings. Returns the removed names."""
        old = self.table
        self.named = bool(names)
        wanted = names or [ANONYMOUS]
        self.table = {name: old.get(name) or Queue(started=not names) for name in wanted}
        return [name for name in old if name not in self.table]

    @property
    def names(self) -> list[str]:
        return list(self.table) if self.named else []

    def get(self, name: str | None) -> Queue:
        """The queue of this name. Raises QueueError."""
        found = self.table.get(name or ANONYMOUS)
        if found is None:
            if not name:
                raise QueueError("a named queue is required")
            raise QueueError(f"'{name}' is not a valid queue")
        return found

    def select(self, name: str | None, everything: bool) -> list[str]:
        """The names of the queues that a request selects. Raises QueueError."""
        if name:
            self.get(name)
            return [name]
        if self.named and not everything:
            raise QueueError("Named queues detected; name a queue or ask for all of them")
        return list(self.table)

    def refusal(self, name: str) -> str:
        """Why a job may not be submitted to a queue; "" if it may."""
        queue = self.table.get(name)
        if queue is None:
            return f"Invalid queue '{name}' specified" if name else "a named queue is required"
        if queue.enabled:
            return ""
        where = f" to {name}" if name else ""
        return f"job submission{where} is disabled: {queue.disable_reason or _BY_ADMINISTRATOR}"

    def started(self, name: str) -> bool:
        """True if jobs of a queue are sent to the scheduler. False for a removed queue."""
        queue = self.table.get(name)
        return queue is not None and queue.started

    def stop_note(self, name: str) -> str:
        """Why jobs of a queue are not sent to the scheduler; "" if they are."""
        queue = self.table.get(name)
        if queue is None:
            return f"queue {name} is not configured" if name else "a named queue is required"
        if queue.started:
            return ""
        return f"queue stopped: {queue.stop_reason}" if queue.stop_reason else "queue stopped"

    def status(self, name: str | None) -> dict[str, Any]:
        """The response to queue-status. Raises QueueError."""
        queue = self.get(name)
        out: dict[str, Any] = {"enable": queue.enabled, "start": queue.started}
        if not queue.enabled and queue.disable_reason is not None:
            out["disable_reason"] = queue.disable_reason
        if not queue.started and queue.stop_reason is not None:
            out["stop_reason"] = queue.stop_reason
        return out

    def set_enabled(self, names: list[str], enabled: bool, reason: str | None, checkpoint: bool) -> None:
        """Enable or disable the queues. With `checkpoint`, a restart restores the change."""
        for name in names:
            queue = self.table[name]
            queue.enabled, queue.disable_reason = enabled, None if enabled else reason
            if checkpoint:
                queue.saved_enable = queue.enabled, queue.disable_reason

    def set_started(self, names: list[str], started: bool, reason: str | None, checkpoint: bool) -> None:
        """Start or stop the queues. With `checkpoint`, a restart restores the change."""
        for name in names:
            queue = self.table[name]
            queue.started, queue.stop_reason = started, None if started else reason
            if checkpoint:
                queue.saved_start = queue.started, queue.stop_reason

    def save(self) -> list[list[Any]]:
        """The settings for a restart: [name, enabled, disable_reason, started, stop_reason] of each queue."""
        return [[name, *queue.saved_enable, *queue.saved_start] for name, queue in self.table.items()]

    def restore(self, saved: list[list[Any]]) -> None:
        """Restore the settings of save(); queues that no longer exist are skipped."""
        for name, enabled, disable_reason, started, stop_reason in saved:
            queue = self.table.get(name)
            if queue is not None:
                queue.enabled, queue.disable_reason = queue.saved_enable = enabled, disable_reason
                queue.started, queue.stop_reason = queue.saved_start = started, stop_reason
