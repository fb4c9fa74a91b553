"""The job-info service (RFC 41): lookups, and watching a job's logs as they grow.

The service reads the job store directly, so that an event costs one message per watcher. Only the job's owner and the
instance owner have access. A long log is sent in pieces; each piece waits until the reader has received the last one.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_hidden
from headrace.engine.broker.services import drain
from headrace.engine.jobs.pack import event_line
from headrace.engine.modules.job_manager.logs import Log
from headrace.engine.modules.job_manager.pipeline import News
from headrace.engine.modules.job_manager.store import GUEST_LOGS, Store
from headrace.formats.spec import eventlog, jobid
from headrace.formats.spec.message import ROLE_OWNER, Message
from headrace.formats.spec.os_error import text_of
from headrace.formats.spec.requests.jobs import JOB_INFO
from headrace.formats.spec.treeobj import decode_val

NAME = "job-info"

_DECODE, _CURRENT = 1, 2
# Bytes of a log in one response, and bytes that may be sent before the reader has to confirm their receipt.
_PIECE = 64 << 10
_PORTION = 1 << 20
# The event and the request by which the KVS reports keys of jobs.
_COMMITTED = "kvs.job-data"
_NONE: frozenset[str] = frozenset()
_UPDATES = {"jobspec": "jobspec-update", "R": "resource-update"}


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Load the module job-info. The module does nothing: the job manager provides the service."""
    only(ctx, args)


class _Watch:
    """A watcher of a guest log.

    `offset` is the next byte to send, `asked` the offset at which the reader last had to confirm its receipt.
    """

    __slots__ = ("asked", "busy", "id", "msg", "name", "offset")

    def __init__(self, msg: Message, id: int, name: str) -> None:
        self.msg = msg
        self.id = id
        self.name = name
        self.offset = 0
        self.asked = 0
        self.busy = False


class JobInfo:
    """The service, which uses the job manager's context."""

    def __init__(self, ctx: ModuleContext, store: Store) -> None:
        self.ctx = ctx
        self.store = store
        self.main: dict[int, list[Message]] = {}
        self.guest: dict[int, list[_Watch]] = {}
        self.updates: dict[int, list[tuple[Message, str]]] = {}
        self.over: set[int] = set()
        self.overlays = Overlays(ctx, self._overlaid)
        self.streams = ctx.streams("eventlog-watch")
        self.streams.on_remove = self._watcher_left
        self.update_streams = ctx.streams("update-watch")
        self.update_streams.on_remove = self._update_watcher_left
        ctx.service(
            NAME,
            {
                "lookup": self._lookup,
                "eventlog-watch": self._watch,
                "update-lookup": self._update_lookup,
                "update-watch": self._update_watch,
                # The service has its own statistics, though it shares the job manager's context.
                "stats-get": lambda _msg: self.stats(),
            },
            open=("lookup", "eventlog-watch", "update-lookup", "update-watch", "stats-get"),
            requests=JOB_INFO,
        )

    def _permit(self, msg: Message) -> int:
        """The job of a request. Raises RpcError(ENOENT, EPERM).

        In private mode, another user's job is not found.
        """
        id = msg.obj["id"]
        try:
            owner = self.store.owner(id)
        except (KeyError, IndexError):
            raise RpcError(errno.ENOENT) from None
        if is_hidden(self.ctx, msg, owner):
            raise RpcError(errno.ENOENT)
        if not msg.rolemask & ROLE_OWNER and msg.userid != owner:
            raise RpcError(errno.EPERM)
        return int(id)

    # -- lookups

    def _lookup(self, msg: Message) -> Any:
        flags = _flags(msg, _DECODE | _CURRENT)
        try:
            id = self._permit(msg)
        except RpcError as exc:
            raise RpcError(exc.errnum, "invalid job id" if exc.errnum == errno.ENOENT else exc.text) from None
        current = bool(flags & _CURRENT)
        out: dict[str, Any] = {"id": id}
        elsewhere = []
        overlaid = self.overlays.of(id)
        for key in msg.obj["keys"]:
            if key in overlaid:
                elsewhere.append(key)
                continue
            try:
                if key in _UPDATES and (current or flags & _DECODE):
                    value = self.store.jobspec(id, current) if key == "jobspec" else self._r(id, current)
                    # Current values have the blanks that Flux gives them; scripts search for `"queue": "batch"`.
                    out[key] = value if flags & _DECODE else json.dumps(value, ensure_ascii=False)
                else:
                    out[key] = self.store.lookup(id, key)
            except (KeyError, FileNotFoundError):
                if not key.startswith("guest."):
                    raise _no_key(key) from None
                elsewhere.append(key)
            except OSError as exc:
                raise RpcError(exc.errno or errno.EIO, exc.strerror or "") from None
        return self._from_kvs(out, elsewhere, bool(flags & _DECODE)) if elsewhere else out

    async def _from_kvs(self, out: dict[str, Any], keys: list[str], decode: bool) -> dict[str, Any]:
        """Add values from the KVS to `out`: committed by the job itself, or overriding the job store's data.

        Raises RpcError(ENOENT). Raises RpcError(EINVAL) for an eventlog that cannot be parsed, and with `decode` also
        for such a jobspec or R.
        """
        folder = jobid.encode(out["id"], "kvs")
        for key in keys:
            body = {"key": f"{folder}.{key}", "flags": 0, "namespace": "primary"}
            try:
                found = await self.ctx.rpc("kvs.lookup", body)
            except RpcError as exc:
                raise _no_key(key) if exc.errnum == errno.ENOENT else exc from None
            text = decode_val(found["val"]).decode("utf-8", "surrogateescape")
            out[key] = text
            if key == "eventlog":
                _events(text)
            elif decode and key in _UPDATES:
                try:
                    out[key] = json.loads(text)
                except ValueError:
                    raise RpcError(errno.EINVAL, f"error decoding {key}") from None
        return out

    def _r(self, id: int, current: bool) -> dict[str, Any]:
        r = self.store.r(id, current)
        if r is None:
            raise KeyError("R")
        return r

    # -- eventlogs

    def _watch(self, msg: Message) -> None:
        id = self._permit(msg)
        path = msg.obj["path"]
        if path == "eventlog":
            self._watch_main(msg, id)
            return
        path = path if path.startswith("guest.") else f"guest.{path}"
        active = id in self.store.active
        if not active and self.store.guest_log(id, path) is None:
            # If the job never started, its log is complete and empty. If it started, this log does not exist.
            started = any(event[1] == "start" for event in self.store.events(id))
            raise RpcError(errno.ENOENT if started else errno.ENODATA)
        if active and path not in GUEST_LOGS and not (msg.obj.get("flags") or 0) & 1:
            raise RpcError(errno.ENOENT)
        self.streams.add(msg)
        watch = _Watch(msg, id, path)
        self.guest.setdefault(id, []).append(watch)
        self._pump(watch)

    def _watch_main(self, msg: Message, id: int) -> None:
        self.streams.add(msg)
        if "eventlog" in self.overlays.of(id):
            self.ctx.spawn(self._send_overlay(msg, id))
            return
        active = id in self.store.active
        for event in self.store.main_log(id):
            self.ctx.respond(msg, {"event": event_line(event).decode("utf-8", "surrogateescape")})
            if event[1] == "clean" and not active:
                # A watch ends at `clean`. Events that users appended later are only returned by a lookup.
                break
        if active:
            self.main.setdefault(id, []).append(msg)
        else:
            self._end(msg)

    async def _send_overlay(self, msg: Message, id: int) -> None:
        """Send an eventlog that was committed to the KVS. It is complete: new events go to the job store."""
        try:
            text = (await self._from_kvs({"id": id}, ["eventlog"], False))["eventlog"]
        except RpcError as exc:
            self.streams.remove(msg)
            self.ctx.respond_error(msg, exc.errnum, exc.text)
            return
        if msg in self.streams:
            for event in _events(text):
                self.ctx.respond(msg, {"event": eventlog.encode(event)})
            self._end(msg)

    def _overlaid(self, id: int, key: str) -> None:
        """End the watches of an eventlog that was overwritten in the KVS.

        The events sent so far are not part of the new eventlog.
        """
        if key == "eventlog":
            for msg in list(self.main.get(id, ())):
                self.streams.remove(msg)
                self.ctx.respond_error(msg, errno.EINVAL, "the eventlog was overwritten in the KVS")

    def _end(self, msg: Message) -> None:
        """End the stream of a complete log."""
        self.streams.remove(msg)
        self.ctx.respond_error(msg, errno.ENODATA)

    def _watcher_left(self, msg: Message) -> None:
        """Remove a watcher that canceled, disconnected or was ended by _end()."""
        id = msg.obj["id"]
        watchers = self.main.get(id)
        if watchers is not None and msg in watchers:
            watchers.remove(msg)
            if not watchers:
                del self.main[id]
        guests = self.guest.get(id)
        if guests is not None:
            others = [watch for watch in guests if watch.msg is not msg]
            if others:
                self.guest[id] = others
            else:
                del self.guest[id]

    def publish(self, news: list[News]) -> None:
        """Send events that have become durable."""
        if not (self.main or self.guest or self.updates):
            return
        for job, _, events in news:
            id = job.id
            if id in self.guest and any(event[1] in ("finish", "clean") for event in events):
                self.over.add(id)
                for watch in list(self.guest[id]):
                    self._pump(watch)
            for msg in list(self.main.get(id, ())):
                for event in events:
                    self.ctx.respond(msg, {"event": event_line(event).decode("utf-8", "surrogateescape")})
            if id in self.updates:
                self._send_updates(id, [event[1] for event in events])
            if events[-1][1] == "clean":
                for msg in list(self.main.get(id, ())):
                    self._end(msg)
                self.over.discard(id)

    # -- guest logs

    def appended(self, id: int) -> None:
        """Send the new part of a guest log to its watchers."""
        for watch in self.guest.get(id, ()):
            self._pump(watch)

    def appended_to_main(self, id: int, lines: bytes) -> None:
        """Send lines that a user appended to the main eventlog of a job."""
        for msg in self.main.get(id, ()):
            for line in lines.splitlines(keepends=True):
                self.ctx.respond(msg, {"event": line.decode()})

    def _complete(self, id: int) -> bool:
        """True if nothing more is written to a job's guest logs: the job ended, or will never start."""
        job = self.store.active.get(id)
        return job is None or id in self.over or any(event[1] == "finish" for event in job.events[: job.shown])

    def _pump(self, watch: _Watch) -> None:
        """Send a watcher the part of the log that it lacks. If the log cannot be read, only this stream fails."""
        if watch.busy:
            return
        try:
            self._send_more(watch)
        except OSError as exc:
            self.streams.remove(watch.msg)
            self.ctx.respond_error(watch.msg, exc.errno or errno.EIO, text_of(exc))

    def _send_more(self, watch: _Watch) -> None:
        """Send at most one piece. Raises OSError."""
        log = self.store.guest_log(watch.id, watch.name)
        if log is not None and watch.offset < log.size:
            self._send(watch, log)
            if watch.offset - watch.asked > _PORTION:
                watch.asked = watch.offset
                watch.busy = True
                self.ctx.call(drain.TOPIC, drain.route_of(watch.msg), lambda _reply: self._resume(watch), self.ctx.rank)
                return
            if watch.offset < log.size:
                watch.busy = True
                self.ctx.call_soon(self._resume, watch)
                return
        done = watch.name == "guest.exec.eventlog" and log is not None and _ends_with_done(log)
        if done or self._complete(watch.id):
            self._end(watch.msg)

    def _send(self, watch: _Watch, log: Log) -> None:
        piece = log.read(watch.offset, _PIECE)
        watch.offset += len(piece)
        # Splits bytes, because str.splitlines also splits at separators that JSON does not escape.
        for line in piece.splitlines(keepends=True):
            self.ctx.respond(watch.msg, {"event": line.decode("utf-8", "surrogateescape")})

    def _resume(self, watch: _Watch) -> None:
        watch.busy = False
        if watch.msg in self.streams:
            self._pump(watch)

    # -- jobspec and R with their updates

    def _update_key(self, msg: Message) -> tuple[int, str]:
        key = msg.obj["key"]
        if key not in _UPDATES:
            raise RpcError(errno.EINVAL, f"unsupported key {key}: use jobspec or R")
        _flags(msg, 0)
        return self._permit(msg), key

    def _current(self, id: int, key: str) -> dict[str, Any]:
        try:
            return self._r(id, True) if key == "R" else self.store.jobspec(id, True)
        except KeyError:
            raise RpcError(errno.ENOENT) from None

    def _update_lookup(self, msg: Message) -> dict[str, Any]:
        id, key = self._update_key(msg)
        return {"id": id, key: self._current(id, key)}

    def _update_watch(self, msg: Message) -> None:
        id, key = self._update_key(msg)
        current = self._current(id, key)
        self.update_streams.add(msg)
        self.ctx.respond(msg, {"id": id, key: current})
        if id in self.store.active:
            self.updates.setdefault(id, []).append((msg, key))
        else:
            self._update_end(msg)

    def _send_updates(self, id: int, names: list[str]) -> None:
        for msg, key in list(self.updates[id]):
            if _UPDATES[key] in names:
                self.ctx.respond(msg, {"id": id, key: self._current(id, key)})
            if names[-1] == "clean":
                self._update_end(msg)

    def _update_end(self, msg: Message) -> None:
        self.update_streams.remove(msg)
        self.ctx.respond_error(msg, errno.ENODATA)

    def _update_watcher_left(self, msg: Message) -> None:
        id = msg.obj["id"]
        others = [entry for entry in self.updates.get(id, ()) if entry[0] is not msg]
        if others:
            self.updates[id] = others
        else:
            self.updates.pop(id, None)

    def stats(self) -> dict[str, Any]:
        # Lookups are answered at once, so their number is always 0.
        return {
            "lookups": 0,
            "update_lookups": 0,
            "watchers": len(self.streams),
            "guest_watchers": sum(map(len, self.guest.values())),
            "update_watchers": len(self.update_streams),
        }


def _no_key(key: str) -> RpcError:
    return RpcError(errno.ENOENT, f"{key}: key not found")


class Overlays:
    """Job keys whose KVS value takes precedence over the job store's value, as reported by `kvs.job-data`.

    Few jobs have such keys, because they exist only after a user commits to a key in a job's directory.
    `overlaid(id, key)` is called when a key of a job gets a value in the KVS.
    """

    def __init__(self, ctx: ModuleContext, overlaid: Callable[[int, str], None]) -> None:
        self._keys: dict[int, set[str]] = {}
        self._overlaid = overlaid
        ctx.subscribe(_COMMITTED, lambda event: self._take(event.obj))
        ctx.subscribe("job-purge-inactive", self._purged)
        # Without the KVS module, no job has such keys, so an error is ignored.
        ctx.call(_COMMITTED, {}, lambda reply: None if reply.errnum else self._take(reply.obj))

    def of(self, id: int) -> set[str] | frozenset[str]:
        """The keys of a job with values in the KVS."""
        return self._keys.get(id, _NONE)

    def _take(self, body: dict[str, Any]) -> None:
        for path, present in body["keys"].items():
            folder, _, key = path.rpartition(".")
            try:
                id = jobid.parse(folder)
            except ValueError:
                # The key resembles a job's key, but is not below a job's directory.
                continue
            if present:
                self._keys.setdefault(id, set()).add(key)
                self._overlaid(id, key)
            elif id in self._keys:
                self._keys[id].discard(key)
                if not self._keys[id]:
                    del self._keys[id]

    def _purged(self, event: Message) -> None:
        for id in (event.obj or {}).get("jobs", ()):
            self._keys.pop(id, None)


def _flags(msg: Message, known: int) -> int:
    flags: int = msg.obj.get("flags") or 0
    if flags & ~known:
        raise RpcError(errno.EPROTO, f"{msg.topic} request rejected with invalid flag")
    return flags


def _events(text: str) -> list[eventlog.Event]:
    """The events of an eventlog. Raises RpcError(EINVAL)."""
    try:
        return eventlog.decode(text)
    except eventlog.EventlogError:
        raise RpcError(errno.EINVAL, "error parsing eventlog") from None


def _ends_with_done(log: Log) -> bool:
    last = log.read(max(log.size - 128, 0), 256).rstrip(b"\n").rpartition(b"\n")[2]
    return b'"name":"done"' in last
