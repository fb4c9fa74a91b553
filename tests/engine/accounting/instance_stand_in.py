"""A stand-in for an instance, as a client's handle and reactor see it: jobs that end, the journal, lookups."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.engine.accounting import database
from headrace.storage.database import Database

USERS = {1001: ("ann", "A"), 1002: ("bob", "B")}


def add_users(data: Database) -> None:
    """Add banks A and B, and the users in them."""
    for bank, parent in (("root", ""), ("A", "root"), ("B", "root")):
        database.insert(data, "bank_table", {"bank": bank, "parent_bank": parent, "shares": 1})
    for userid, (name, bank) in USERS.items():
        row = {"creation_time": 0, "username": name, "userid": userid, "bank": bank, "default_bank": bank}
        database.insert(data, "association_table", row)


def usages(data: Database) -> dict[str, float]:
    """The usage of users and banks that have some."""
    found = data.rows("SELECT username, job_usage FROM association_table UNION SELECT bank, job_usage FROM bank_table")
    return {name: usage for name, usage in found if usage}


def resources(nodes: int) -> str:
    """R of whole nodes with 4 cores and a GPU."""
    ranks = f"0-{nodes - 1}" if nodes > 1 else "0"
    lite = [{"rank": ranks, "children": {"core": "0-3", "gpu": "0"}}]
    return json.dumps({"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}})


class Reply:
    """A call whose responses are known."""

    def __init__(self, found: list[Any]) -> None:
        self.found = found

    def get(self, timeout: float | None = None) -> Any:
        one = self.found.pop(0)
        if isinstance(one, OSError):
            raise one
        return one

    def __iter__(self) -> Iterator[Any]:
        return iter(self.found)

    def then(self, callback: Callable[[Reply], None]) -> Reply:
        self.callback = callback
        return self


class Instance:
    """Jobs by id, in the order of their ends, and the calls that were made to the policy."""

    def __init__(self) -> None:
        self.ended: dict[int, dict[str, Any]] = {}
        # Jobs that run, by id: userid, bank, t_run and R.
        self.running: dict[int, dict[str, Any]] = {}
        self.lookups = 0
        self.journals: list[Reply] = []
        self.pushed: list[tuple[str, Any]] = []
        self.has_policy = True
        # Lookups that fail, since the job manager is being reloaded.
        self.failing = 0

    def end(self, userid: int, bank: str, nodes: int, start: float, end: float, ran: bool = True) -> int:
        """A job ends, and all journals say so."""
        id = 1000 + len(self.ended)
        events = [(start - 1, "submit", {"userid": userid, "urgency": 16, "flags": 0, "version": 1})]
        events += [(start, "alloc", None)] * ran + [(end, "clean", None)]
        lines = [{"timestamp": at, "name": name} | ({"context": more} if more else {}) for at, name, more in events]
        self.ended[id] = {
            "end": end,
            "eventlog": "".join(json.dumps(line) + "\n" for line in lines),
            "jobspec": json.dumps({"attributes": {"system": {"bank": bank, "duration": 60.0}}}),
            "R": resources(nodes) if ran else None,
        }
        for journal in self.journals:
            journal.found.append({"id": id, "events": [{"timestamp": end, "name": "clean"}]})
        return id

    # -- a handle

    def subscribe(self, topic: str) -> None:
        assert topic == "jobtap-load"

    def attr_get(self, name: str) -> str:
        assert name == "security.owner"
        return "0"

    def stream(self, topic: str, body: Any) -> Reply:
        if topic == "job-manager.events-journal":
            journal = Reply([{"id": -1, "events": []}])
            self.journals.append(journal)
            return journal
        assert topic == "job-list.list"
        if "t_run" in body["attrs"]:
            return Reply([{"jobs": [{"id": id, **job} for id, job in self.running.items()]}])
        newest = sorted(self.ended.items(), key=lambda item: -item[1]["end"])
        found = [{"id": id, "t_inactive": job["end"]} for id, job in newest if job["end"] > body["since"]]
        return Reply([{"jobs": found}])

    def rpc(self, topic: str, body: Any = None) -> Reply:
        if topic == "job-info.lookup":
            self.lookups += 1
            if self.failing:
                self.failing -= 1
                return Reply([OSError(errno.ENOSYS, "no such service")])
            job = self.running.get(body["id"]) or self.ended[body["id"]]
            if job["R"] is None:
                return Reply([OSError(errno.ENOENT, "key R not found")])
            return Reply([{key: job[key] for key in body["keys"]}])
        if not self.has_policy:
            return Reply([OSError(errno.ENOSYS, "no such service")])
        self.pushed.append((topic.rpartition(".")[2], (body or {}).get("data")))
        return Reply([None])


class Timers:
    """A reactor whose timers are run by hand."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.repeated: list[Callable[[], None]] = []
        self.pauses: list[float] = []

    def add_timer(self, after: float, callback: Callable[[], None], repeat: float = 0.0) -> object:
        self.pauses.append(after)
        (self.repeated if repeat else self.waiting).append(callback)
        return object()

    def run(self, instance: Instance, most: int = 1000) -> None:
        """Deliver the journal's messages, and run timers until none is left, or `most` of them."""
        while most:
            for journal in list(instance.journals):
                while journal.found:
                    journal.callback(journal)
            if not self.waiting:
                return
            most -= 1
            self.waiting.pop(0)()
