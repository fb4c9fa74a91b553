"""The events journal (job-manager.events-journal): all events of all jobs, as they occur.

The job-list service uses it. A consumer that requests past events gets them in slices, inactive jobs first. New events
of a job wait until its past events are sent. A message without a job and events marks the end of the past events.

With `grouped`, consecutive jobs that have the same new events come in one message. New priorities of thousands of
waiting jobs are such events.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.jobs.record import Event
from headrace.engine.modules.job_manager.pipeline import News
from headrace.engine.modules.job_manager.store import Store
from headrace.formats.spec.job_state import SCHED
from headrace.formats.spec.jobspec import Bare
from headrace.formats.spec.message import Message

_ANY = -1
# Inactive jobs in one slice, which takes about 2 ms.
_SLICE = 50


class _Consumer:
    __slots__ = ("allow", "deny", "grouped", "past")

    def __init__(self, body: dict[str, Any]) -> None:
        self.allow = _names(body, "allow")
        self.deny = _names(body, "deny")
        # True if a message may have the same events of several jobs: {ids, events}. No filter applies then.
        self.grouped = bool(body.get("grouped")) and self.allow is None and self.deny is None
        self.past: dict[int, None] = {}

    def wants(self, name: str) -> bool:
        return (self.allow is None or name in self.allow) and (self.deny is None or name not in self.deny)


class EventsJournal:
    """All consumers of the journal."""

    def __init__(self, ctx: ModuleContext, store: Store) -> None:
        self.ctx = ctx
        self.store = store
        self.streams = ctx.streams("events-journal")
        self.consumers: dict[Message, _Consumer] = {}
        self.streams.on_remove = lambda msg: self.consumers.pop(msg, None)  # type: ignore[assignment]
        self.events = 0
        self.bare = Bare()

    def open(self, msg: Message) -> None:
        """Handle a request {full, allow?, deny?, grouped?}."""
        body = msg.obj or {}
        consumer = _Consumer(body)
        self.streams.add(msg)
        self.consumers[msg] = consumer
        if body.get("full"):
            # Inactive jobs are in the order of their ends, which job-list uses (RFC 43).
            consumer.past = dict.fromkeys([*self.store.places, *sorted(self.store.active)])
            self._send_past(msg, consumer)
        else:
            for job in self.store.active.values():
                self._send(msg, consumer, job.id, job.events[: job.shown], True)
            self.ctx.respond(msg, {"id": _ANY, "events": []})

    def _send_past(self, msg: Message, consumer: _Consumer) -> None:
        if self.consumers.get(msg) is not consumer:
            return
        for id in list(consumer.past)[:_SLICE]:
            del consumer.past[id]
            try:
                self._send(msg, consumer, id, self.store.events(id), True)
            except (KeyError, RecursionError):
                # The job was purged meanwhile, or its record is nested too deep (accepted by an earlier version).
                continue
            job = self.store.active.get(id)
            if job is not None and job.state == SCHED and job.annotations:
                # The scheduler's annotations of a pending job are not in its eventlog.
                event = (self.ctx.now(), "annotations", {"annotations": job.annotations})
                self._respond(msg, consumer, id, [event], {})
        if consumer.past:
            self.ctx.call_soon(self._send_past, msg, consumer)
        else:
            self.ctx.respond(msg, {"id": _ANY, "events": []})

    def _send(self, msg: Message, consumer: _Consumer, id: int, events: list[Event], extras: bool) -> None:
        if events:
            self._respond(msg, consumer, id, events, self._extras(id, events) if extras else {})

    def _extras(self, id: int, events: list[Event]) -> dict[str, Any]:
        """The jobspec if `events` has a submit event, and R if it has an alloc event."""
        out: dict[str, Any] = {}
        for _, name, _ in events:
            if name == "submit":
                out["jobspec"] = self.store.jobspec(id, False)
            elif name == "alloc":
                r = self.store.r(id, True)
                if r is not None:
                    out["R"] = r
        return out

    def _respond(self, msg: Message, consumer: _Consumer, id: int, events: list[Event], extras: dict[str, Any]) -> None:
        if consumer.allow is None and consumer.deny is None:
            lines = [event_object(event) for event in events]
        else:
            lines = [event_object(event) for event in events if consumer.wants(event[1])]
        if lines:
            self.ctx.respond(msg, {"id": id, "events": lines, **extras})

    def publish(self, news: list[News]) -> None:
        """Send events that have become durable, job by job."""
        consumers = list(self.consumers.items())
        alike: list[int] = []
        latest: list[Event] = []
        for job, first, events in news:
            self.events += len(events)
            if not consumers:
                continue
            if first and job.r is None and events == latest:
                alike.append(job.id)
                continue
            self._send_alike(alike, latest)
            if first and job.r is None:
                alike, latest = [job.id], events
                continue
            alike, latest = [], []
            extras: dict[str, Any] = {}
            if first == 0:
                extras["jobspec"] = self.bare.of(job.jobspec)
            if job.r is not None and any(event[1] == "alloc" for event in events):
                with_annotations = _with_annotations(events)
                self.events += len(with_annotations) - len(events)
                events, extras["R"] = with_annotations, job.r
            for msg, consumer in consumers:
                if job.id not in consumer.past:
                    self._respond(msg, consumer, job.id, events, extras)
        self._send_alike(alike, latest)

    def _send_alike(self, ids: list[int], events: list[Event]) -> None:
        """Send the same events of several jobs, in one message to the consumers that take such messages."""
        for msg, consumer in list(self.consumers.items()) if ids else ():
            new = [id for id in ids if id not in consumer.past] if consumer.past else ids
            if consumer.grouped and len(new) > 1:
                self.ctx.respond(msg, {"ids": new, "events": [event_object(event) for event in events]})
            else:
                for id in new:
                    self._respond(msg, consumer, id, events, {})

    def annotations(self, id: int, time: float, annotations: dict[str, Any] | None) -> None:
        """Send volatile annotations, as an event that is not in the eventlog."""
        self.events += 1
        event = (time, "annotations", {"annotations": annotations or {}})
        for msg, consumer in list(self.consumers.items()):
            if id not in consumer.past:
                self._respond(msg, consumer, id, [event], {})

    def stats(self) -> dict[str, Any]:
        return {"listeners": len(self.consumers), "events": self.events}


def _with_annotations(events: list[Event]) -> list[Event]:
    """Insert an `annotations` event before each `alloc` that has annotations, as in flux-core's journal."""
    found: list[Event] = []
    for event in events:
        if event[1] == "alloc" and event[2] and "annotations" in event[2]:
            found.append((event[0], "annotations", event[2]))
        found.append(event)
    return found


def event_object(event: Event) -> dict[str, Any]:
    """An event in the JSON form of RFC 18."""
    if event[2] is None:
        return {"timestamp": event[0], "name": event[1]}
    return {"timestamp": event[0], "name": event[1], "context": event[2]}


def _names(body: dict[str, Any], key: str) -> frozenset[str] | None:
    value = body.get(key)
    return None if value is None else frozenset(map(str, value))
