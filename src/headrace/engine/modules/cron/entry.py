"""Entries of cron and the runs of their commands. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.formats.spec.wait_status import exit_code


class Task:
    """One run of an entry's command. Times are seconds since the epoch."""

    def __init__(self, rank: int, now: float) -> None:
        self.rank = rank
        self.pid = 0
        self.status = 0
        self.times = {"create-time": now}
        # The errno if the subprocess server could not start the command.
        self.rexec_errno = 0
        self.timed_out = False

    @property
    def state(self) -> str:
        if self.rexec_errno:
            return "Rexec Failure"
        if "start-time" not in self.times:
            return "Deferred"
        if "end-time" not in self.times:
            return "Running"
        if self.timed_out:
            return "Timeout"
        return "Failed" if self.status else "Exited"

    def to_obj(self) -> dict[str, Any]:
        obj = {"rank": self.rank, "pid": self.pid, "status": self.status, "state": self.state, **self.times}
        if self.rexec_errno:
            obj["rexec_errno"] = self.rexec_errno
        if self.timed_out:
            obj["timedout"] = True
        if "end-time" in self.times:
            obj["code"] = exit_code(self.status)
        return obj


class Entry:
    """A command with its schedule.

    `task` is the current or deferred run; `stats` counts runs since the creation. The entry is stopped after `repeat`
    runs since its last start, or after `stop_on_failure` failures (0: no limit).
    """

    def __init__(self, number: int, asked: dict[str, Any], now: float) -> None:
        self.id = number
        self.name: str = asked["name"]
        self.command: str = asked["command"]
        self.type: str = asked["type"]
        self.rank: int = asked.get("rank", 0)
        self.cwd: str | None = asked.get("cwd")
        self.environ: dict[str, Any] | None = asked.get("environ")
        self.repeat: int = asked.get("repeat", 0)
        self.stop_on_failure: int = asked.get("stop-on-failure", 0)
        self.timeout: float = asked.get("timeout", -1.0)
        self.stopped = True
        # True if the entry was deleted while its task was running. It is removed when the task ends.
        self.deleted = False
        self.task: Task | None = None
        self.finished: deque[Task] = deque(maxlen=max(asked.get("task-history-count", 1), 0))
        counts = ("count", "failcount", "total", "success", "failure", "deferred")
        self.stats: dict[str, Any] = {"ctime": now, "starttime": 0.0, "lastrun": 0.0, **dict.fromkeys(counts, 0)}

    def start(self, now: float) -> None:
        self.stopped = False
        self.stats.update(starttime=now, count=0, failcount=0)

    def create_task(self, now: float) -> bool:
        """Create the next task; False if the last task has not ended."""
        if self.task is not None:
            return False
        self.task = Task(self.rank, now)
        self.stats["total"] += 1
        self.stats["count"] += 1
        return True

    @property
    def has_run_enough(self) -> bool:
        return bool(self.repeat and self.stats["count"] >= self.repeat)

    @property
    def has_failed_enough(self) -> bool:
        return bool(self.stop_on_failure and self.stats["failcount"] >= self.stop_on_failure)

    def finish(self, now: float) -> Task:
        """Count a task that has ended or could not be started, and add it to the history."""
        task = self.task
        assert task is not None
        task.times["end-time"] = now
        if task.rexec_errno or task.status:
            self.stats["failure"] += 1
            self.stats["failcount"] += 1
        else:
            self.stats["success"] += 1
        self.finished.appendleft(task)
        self.task = None
        return task

    def to_obj(self, typedata: dict[str, Any]) -> dict[str, Any]:
        tasks = ([] if self.task is None else [self.task]) + list(self.finished)
        obj = {
            "id": self.id,
            "rank": self.rank,
            "name": self.name,
            "command": self.command,
            "repeat": self.repeat,
            "stopped": self.stopped,
            "type": self.type,
            "stats": dict(self.stats),
            "typedata": typedata,
            "tasks": [task.to_obj() for task in tasks],
        }
        if self.timeout >= 0:
            obj["timeout"] = self.timeout
        return obj
