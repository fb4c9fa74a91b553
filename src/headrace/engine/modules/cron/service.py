"""The service `cron`: runs commands at intervals, at dates and after events.

Commands are run by the subprocess servers (RFC 42). `cron.create`, `delete`, `start` and `stop` respond with the entry,
`list` with all entries. If a sync event is set (by the module argument `sync` or by `cron.sync`), due tasks wait for
that event, unless it occurred less than `sync_epsilon` seconds ago. Entries are lost when the module is unloaded.
"""

from __future__ import annotations

import base64
import errno
import logging
import os
import signal
from typing import Any

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.cron.entry import Entry
from headrace.engine.modules.cron.schedule import FIELDS, Dates, Events, ScheduleError
from headrace.formats.spec import duration
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.execution import CRON

NAME = "cron"
_STDOUT, _STDERR = 1, 2
# The most bytes of an unfinished line of output that are kept.
_LONGEST_LINE = 4096
# The longest sleep until a date, in seconds. It is limited because clocks are set.
_LONGEST_SLEEP = 3600.0


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Register the service. Raises RpcError(EINVAL) for an unknown argument."""
    _Cron(ctx, args)


class _Interval:
    """Due every `interval` seconds, first after `after` seconds. Due only once if `interval` is 0."""

    def __init__(self, cron: _Cron, entry: Entry, args: dict[str, Any]) -> None:
        self._cron, self._entry = cron, entry
        self._interval = _number(args, "interval", None)
        after = _number(args, "after", -1.0)
        self._after = self._interval if after < 0 else after
        self._next = 0.0
        self._timer: Any = None

    def start(self) -> None:
        self._sleep(self._after)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _sleep(self, seconds: float) -> None:
        self._next = self._cron.ctx.now() + seconds
        self._timer = self._cron.ctx.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._interval > 0:
            self._sleep(self._interval)
        self._cron.due(self._entry)

    def to_obj(self) -> dict[str, Any]:
        return {"interval": self._interval, "after": self._after, "next_wakeup": self._next}


class _AtDates:
    def __init__(self, cron: _Cron, entry: Entry, args: dict[str, Any]) -> None:
        self._cron, self._entry = cron, entry
        for name, value in args.items():
            if name in FIELDS and (isinstance(value, bool) or not isinstance(value, (int, str))):
                raise RpcError(errno.EPROTO, f"cron.create: args.{name}: expected a number or a string, got {value!r}")
        try:
            self._dates = Dates(args)
        except ScheduleError as exc:
            raise RpcError(errno.EINVAL, f"cron.create: {exc}") from None
        self._next: float | None = None
        self._timer: Any = None

    def start(self) -> None:
        self._next = self._dates.next_after(self._cron.ctx.now())
        if self._next is None:
            self._cron.ctx.log(logging.ERROR, f"cron-{self._entry.id}: Unable to get next wakeup. Stopping.")
            self._cron.stop(self._entry)
            return
        self._sleep()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _sleep(self) -> None:
        assert self._next is not None
        remaining = max(self._next - self._cron.ctx.now(), 0.0)
        self._timer = self._cron.ctx.call_later(min(remaining, _LONGEST_SLEEP), self._awake)

    def _awake(self) -> None:
        self._timer = None
        now = self._cron.ctx.now()
        if self._next is not None and now < self._next:
            self._sleep()
            return
        self._cron.due(self._entry)
        if not self._entry.stopped:
            self.start()

    def to_obj(self) -> dict[str, Any]:
        return {**self._dates.texts, "next_wakeup": self._next or 0.0}


class _OnEvents:
    def __init__(self, cron: _Cron, entry: Entry, args: dict[str, Any]) -> None:
        self._cron, self._entry = cron, entry
        self._topic = args.get("topic")
        if not isinstance(self._topic, str) or not self._topic:
            raise RpcError(errno.EPROTO, "cron.create: args.topic: expected the topic of an event")
        self._events = Events(int(_number(args, "nth", 0)), int(_number(args, "after", 0)))
        self._min_interval = _number(args, "min_interval", 0.0)
        self._timer: Any = None
        cron.listen(self._topic, self._came)

    def start(self) -> None:
        self._events.counter = 0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _came(self) -> None:
        entry, ctx = self._entry, self._cron.ctx
        if entry.stopped or not self._events.came() or self._timer is not None:
            return
        wait = self._min_interval - (ctx.now() - entry.stats["lastrun"])
        if wait > 1e-5:
            ctx.log(logging.DEBUG, f"cron-{entry.id}: delaying {wait:4.03f}s due to min interval")
            self._timer = ctx.call_later(wait, self._late)
        else:
            self._cron.due(entry)

    def _late(self) -> None:
        self._timer = None
        self._cron.due(self._entry)

    def to_obj(self) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "nth": self._events.nth,
            "after": self._events.after,
            "counter": self._events.counter,
            "min_interval": self._min_interval,
        }


_TYPES = {"interval": _Interval, "datetime": _AtDates, "event": _OnEvents}


def _number(args: dict[str, Any], name: str, usual: float | None) -> float:
    value = args.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RpcError(errno.EPROTO, f"cron.create: args.{name}: expected a number, got {value!r}")
    return value


class _Cron:
    def __init__(self, ctx: ModuleContext, args: list[str]) -> None:
        self.ctx = ctx
        self._entries: dict[int, Entry] = {}
        self._watchers: dict[int, Any] = {}
        self._last_id = 0
        self._listeners: dict[str, list[Any]] = {}
        # Entries whose tasks wait for the sync event.
        self._deferred: list[Entry] = []
        self._sync_topic = ""
        self._sync_epsilon = 0.015
        self._last_sync = 0.0
        for arg in args:
            self._set(arg)
        methods = {
            "create": self._create,
            "delete": self._delete,
            "list": self._list,
            "start": self._start,
            "stop": self._stop,
            "sync": self._sync,
        }
        ctx.service(NAME, methods, requests=CRON)
        ctx.on_stats(lambda: {"entries": len(self._entries), "deferred": len(self._deferred)})
        ctx.on_unload(self._unload)

    def _set(self, arg: str) -> None:
        name, _, value = arg.partition("=")
        try:
            if name == "sync" and value:
                self._sync_to(value)
            elif name == "sync_epsilon":
                self._sync_epsilon = duration.parse(value)
            else:
                raise RpcError(errno.EINVAL, f"cron: unknown argument {arg!r}, known are sync=TOPIC, sync_epsilon=FSD")
        except ValueError as exc:
            raise RpcError(errno.EINVAL, f"cron: {arg}: {exc}") from None

    def _unload(self) -> None:
        for entry in self._entries.values():
            self._kill(entry, signal.SIGTERM)

    def listen(self, topic: str, came: Any) -> None:
        """Call `came()` for each event with this topic. Each topic is subscribed to only once."""
        if topic not in self._listeners:
            self._listeners[topic] = []
            self.ctx.subscribe(topic, self._event)
        self._listeners[topic].append(came)

    def _event(self, msg: Message) -> None:
        for came in list(self._listeners.get(msg.topic, ())):
            came()

    # -- requests

    def _create(self, msg: Message) -> dict[str, Any]:
        # Optional fields may be null.
        asked = {name: value for name, value in msg.obj.items() if value is not None}
        kind = _TYPES.get(asked["type"])
        if kind is None:
            raise RpcError(errno.ENOSYS, f"cron.create: type is {asked['type']!r}, known are {', '.join(_TYPES)}")
        entry = Entry(self._last_id + 1, asked, self.ctx.now())
        self._watchers[entry.id] = kind(self, entry, asked["args"])
        self._last_id = entry.id
        self._entries[entry.id] = entry
        self._begin(entry)
        return self._obj(entry)

    def _delete(self, msg: Message) -> dict[str, Any]:
        entry = self._find(msg)
        found = self._obj(entry)
        if msg.obj.get("kill"):
            self._kill(entry, signal.SIGTERM)
        self.stop(entry)
        entry.deleted = True
        if entry in self._deferred:
            self._deferred.remove(entry)
            entry.task = None
        self._forget(entry)
        return found

    def _list(self, _msg: Message) -> dict[str, Any]:
        return {"entries": [self._obj(entry) for entry in self._entries.values()]}

    def _start(self, msg: Message) -> dict[str, Any]:
        entry = self._find(msg)
        if not entry.stopped or entry.deleted:
            raise RpcError(errno.EINVAL, f"cron-{entry.id} is not stopped")
        self._begin(entry)
        return self._obj(entry)

    def _stop(self, msg: Message) -> dict[str, Any]:
        entry = self._find(msg)
        if entry.stopped:
            raise RpcError(errno.EINVAL, f"cron-{entry.id} is stopped")
        self.stop(entry)
        return self._obj(entry)

    def _sync(self, msg: Message) -> dict[str, Any]:
        if msg.obj is None:
            raise RpcError(errno.EPROTO, "cron.sync: no payload")
        asked = msg.obj
        if asked.get("topic"):
            self._sync_to(asked["topic"])
        elif asked.get("disable"):
            self._sync_topic = ""
            self._run_deferred()
        if asked.get("sync_epsilon") is not None:
            self._sync_epsilon = float(asked["sync_epsilon"])
        if not self._sync_topic:
            return {"sync_disabled": True}
        return {"sync_event": self._sync_topic, "sync_epsilon": self._sync_epsilon}

    def _find(self, msg: Message) -> Entry:
        entry = self._entries.get(msg.obj["id"])
        if entry is None:
            raise RpcError(errno.ENOENT, f"cron-{msg.obj['id']}: No such cron entry found")
        return entry

    def _obj(self, entry: Entry) -> dict[str, Any]:
        return entry.to_obj(self._watchers[entry.id].to_obj())

    # -- entries and their tasks

    def _begin(self, entry: Entry) -> None:
        entry.start(self.ctx.now())
        self._watchers[entry.id].start()

    def stop(self, entry: Entry) -> None:
        """Stop an entry: no task is due until the entry is started again. A running task continues."""
        if not entry.stopped:
            entry.stopped = True
            self._watchers[entry.id].stop()

    def _forget(self, entry: Entry) -> None:
        """Remove a deleted entry once its task has ended. It is listed until then."""
        if entry.deleted and entry.task is None:
            self._entries.pop(entry.id, None)
            self._watchers.pop(entry.id, None)

    def due(self, entry: Entry) -> None:
        """Run the entry's command, or defer it until the sync event."""
        now = self.ctx.now()
        if not entry.create_task(now):
            self.ctx.log(logging.INFO, f"cron-{entry.id}: {entry.name}: task still running or scheduled")
            return
        if entry.has_run_enough:
            self.stop(entry)
        if not self._sync_topic or now - self._last_sync < self._sync_epsilon:
            self._run(entry)
            return
        self._deferred.append(entry)
        entry.stats["deferred"] += 1
        self.ctx.log(logging.DEBUG, f"deferring cron-{entry.id} to next {self._sync_topic} event")

    def _sync_to(self, topic: str) -> None:
        self._sync_topic = topic
        self.ctx.log(logging.INFO, f"synchronizing cron tasks to event {topic}")
        self.listen(topic, lambda: self._synced(topic))

    def _synced(self, topic: str) -> None:
        if topic == self._sync_topic:
            self._last_sync = self.ctx.now()
            self._run_deferred()

    def _run_deferred(self) -> None:
        waiting, self._deferred = self._deferred, []
        for entry in waiting:
            self._run(entry)

    def _run(self, entry: Entry) -> None:
        task = entry.task
        assert task is not None
        task.times["start-time"] = entry.stats["lastrun"] = self.ctx.now()
        env = os.environ if entry.environ is None else entry.environ
        cmd = {
            "cmdline": ["/bin/sh", "-c", entry.command],
            "cwd": entry.cwd or os.getcwd(),
            "env": {name: str(value) for name, value in env.items()},
            "opts": {},
            "channels": [],
        }
        timer: Any = None
        lines = {"stdout": LineReader(_LONGEST_LINE), "stderr": LineReader(_LONGEST_LINE)}

        def time_out() -> None:
            task.timed_out = True
            self._kill(entry, signal.SIGTERM)

        def answered(reply: Message) -> None:
            if reply.errnum:
                if timer is not None:
                    timer.cancel()
                if reply.errnum != errno.ENODATA:
                    task.rexec_errno = reply.errnum
                self._ended(entry)
                return
            body = reply.obj
            if body["type"] == "started":
                task.pid = body["pid"]
                task.times["running-time"] = self.ctx.now()
                end = {"stream": "stdin", "rank": str(entry.rank), "eof": True}
                self.ctx.call("rexec.write", {"matchtag": reply.matchtag, "io": end}, nodeid=entry.rank)
            elif body["type"] == "output":
                self._output(entry, lines[body["io"]["stream"]], body["io"])
            elif body["type"] == "finished":
                task.status = body["status"]

        request = {"cmd": cmd, "flags": _STDOUT | _STDERR}
        self.ctx.call("rexec.exec", request, answered, entry.rank, streaming=True)
        if entry.timeout > 0:
            timer = self.ctx.call_later(entry.timeout, time_out)

    def _output(self, entry: Entry, reader: LineReader, io: dict[str, Any]) -> None:
        data = io.get("data", "")
        raw = base64.b64decode(data) if io.get("encoding") == "base64" else data.encode()
        lines = reader.feed(raw)
        if io.get("eof") and reader.rest:
            lines.append(reader.take_rest())
        level = logging.INFO if io["stream"] == "stdout" else logging.ERROR
        for line in lines:
            text = line.decode("utf-8", "replace")
            self.ctx.log(
                level, f'cron-{entry.id}[{entry.name}]: rank={entry.rank}: command="{entry.command}": "{text}"'
            )

    def _kill(self, entry: Entry, number: int) -> None:
        task = entry.task
        if task is not None and task.pid:
            self.ctx.call("rexec.kill", {"pid": task.pid, "signum": int(number)}, nodeid=task.rank)

    def _ended(self, entry: Entry) -> None:
        task = entry.finish(self.ctx.now())
        if task.rexec_errno:
            reason = os.strerror(task.rexec_errno)
            self.ctx.log(logging.ERROR, f"cron-{entry.id}: failure running {entry.command}: {reason}")
        elif task.status:
            self.ctx.log(logging.ERROR, f'cron-{entry.id}: "{entry.command}": Failed: {task.state}')
        if entry.has_failed_enough and not entry.stopped:
            self.ctx.log(logging.ERROR, f"cron-{entry.id}: exceeded failure limit of {entry.stop_on_failure}. stopping")
            self.stop(entry)
        self._forget(entry)
