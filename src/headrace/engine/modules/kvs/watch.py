"""Watches of KVS keys: `kvs-watch.lookup` streams the current value of a key and all later values.

The module uses only messages that any module could use. Setroot events have the keys that a version changed, and
kvs.lookup-plus at that version's root returns the value, with the watcher's own credentials. Each watcher has only one
lookup in progress at a time, so responses are in the order of versions. Changes of keys in the job store are not
announced, so watched keys of the job store are looked up periodically.
"""

from __future__ import annotations

import base64
import errno
from collections import deque
from typing import Any

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.modules.kvs.tree import KvsError, val_treeobj
from headrace.engine.modules.kvs.walk import split_key
from headrace.formats.spec import message as m
from headrace.formats.spec.kvs_flags import (
    APPEND,
    READDIR,
    READLINK,
    STREAM,
    TREEOBJ,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_INITIAL_SENTINEL,
    WATCH_UNIQ,
)
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.kvs import KVS_WATCH

NAME = "kvs-watch"

_OF_A_WATCH = WATCH_FULL | WATCH_UNIQ | WATCH_APPEND | WATCH_INITIAL_SENTINEL
_KNOWN = READDIR | READLINK | WATCH | WAITCREATE | TREEOBJ | APPEND | STREAM | _OF_A_WATCH
_EVENT = "kvs.namespace-"
# Seconds between lookups of watched keys of the job store.
_POLL = 0.1


def _contradiction(flags: int) -> str:
    """Why a combination of flags is invalid; "" if it is valid."""
    if flags & WATCH and flags & STREAM:
        return "WATCH and STREAM exclude each other"
    if flags & _OF_A_WATCH and not flags & WATCH:
        return "a flag that modifies WATCH is set without WATCH"
    if flags & WATCH_INITIAL_SENTINEL and not flags & WATCH_APPEND:
        return "WATCH_INITIAL_SENTINEL needs WATCH_APPEND"
    return ""


class Watcher:
    """One kvs-watch.lookup request. `todo` are the versions to look up; None means the current version.

    `outside` is True if the key is in the job store (see above), `live` until the request has its last response.
    """

    __slots__ = (
        "busy",
        "flags",
        "key",
        "live",
        "msg",
        "outside",
        "parts",
        "plain",
        "present",
        "previous",
        "sentinel",
        "seq",
        "space",
        "todo",
    )

    def __init__(self, msg: Message, space: str, key: str, flags: int) -> None:
        self.msg = msg
        self.space = space
        self.key = key
        self.plain = ".".join(split_key(key))
        self.flags = flags
        self.todo: deque[dict[str, Any] | None] = deque([None])
        self.busy = False
        self.live = True
        self.outside = False
        # True once a lookup has found the namespace.
        self.present = False
        self.seq = -1
        self.previous: Any = None
        self.parts = 0
        # True until the sentinel is sent, which marks the end of the initial values.
        self.sentinel = bool(flags & WATCH_INITIAL_SENTINEL)

    @property
    def responded(self) -> bool:
        return self.previous is not None

    @property
    def in_parts(self) -> bool:
        return bool(self.flags & (WATCH_APPEND | STREAM))


class Watch:
    """The kvs-watch service: all watchers."""

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.watchers: dict[str, list[Watcher]] = {}
        self._polling = False
        ctx.subscribe(_EVENT, self.event)

    def lookup(self, msg: Message) -> None:
        """kvs-watch.lookup {namespace, key, flags} -> {val}, once or as a stream. Raises RpcError."""
        body = msg.obj
        space, key, flags = body["namespace"], body["key"], body["flags"]
        if flags & ~_KNOWN:
            raise RpcError(errno.EPROTO, f"kvs-watch.lookup: unknown flags {flags & ~_KNOWN:#x}")
        if flags & (WATCH | STREAM) and not msg.streaming:
            raise RpcError(errno.EPROTO, "KVS watch request rejected without streaming RPC flag")
        wrong = _contradiction(flags)
        if wrong:
            raise RpcError(errno.EPROTO, f"kvs-watch.lookup: flags: {wrong}")
        try:
            watcher = Watcher(msg, space, key, flags)
        except KvsError as exc:
            raise RpcError(exc.errnum, exc.text) from None
        self.watchers.setdefault(space, []).append(watcher)
        self._next(watcher)

    def cancel(self, msg: Message) -> None:
        """kvs-watch.cancel {matchtag}: no response, but the canceled watcher gets ENODATA."""
        tag = (msg.obj or {}).get("matchtag")
        for watcher in self._all():
            if watcher.msg.sender == msg.sender and watcher.msg.matchtag == tag:
                self._end(watcher, errno.ENODATA)

    def disconnected(self, sender: str) -> None:
        for watcher in self._all():
            if watcher.msg.sender == sender:
                self._drop(watcher)

    def _all(self) -> list[Watcher]:
        return [watcher for watchers in self.watchers.values() for watcher in watchers]

    def event(self, msg: Message) -> None:
        """Handle a namespace event: created, removed, or setroot (a new version)."""
        name, _, what = msg.topic[len(_EVENT) :].rpartition("-")
        for watcher in list(self.watchers.get(name, ())):
            if what == "removed":
                if watcher.responded or watcher.present or not watcher.flags & WAITCREATE:
                    self._end(watcher, errno.ENOTSUP)
            elif what == "created":
                watcher.todo.append(None)
                self._next(watcher)
            elif what == "setroot":
                body = msg.obj or {}
                if watcher.flags & WATCH_FULL or watcher.plain in body["keys"]:
                    watcher.todo.append(body)
                    self._next(watcher)

    def _next(self, watcher: Watcher) -> None:
        while watcher.todo and not watcher.busy and watcher.live:
            version = watcher.todo.popleft()
            if version is not None and version["rootseq"] <= watcher.seq:
                continue
            flags = watcher.flags & (READDIR | READLINK | TREEOBJ)
            if watcher.in_parts:
                flags |= TREEOBJ
            body = {"key": watcher.key, "namespace": watcher.space, "flags": flags}
            if version is not None and not watcher.outside:
                body["rootdir"] = {"ver": 1, "type": "dirref", "data": [version["rootref"]]}
            watcher.busy = True
            origin = watcher.msg
            self.ctx.call(
                "kvs.lookup-plus",
                body,
                lambda reply, w=watcher, v=version: self._looked_up(w, v, reply),  # type: ignore[misc]
                userid=origin.userid,
                rolemask=origin.rolemask & ~m.ROLE_LOCAL,
            )

    def _looked_up(self, watcher: Watcher, version: dict[str, Any] | None, reply: Message) -> None:
        watcher.busy = False
        if not watcher.live:
            return
        waiting = watcher.flags & WAITCREATE and not watcher.responded
        if reply.errnum:
            if not (reply.errnum == errno.ENOTSUP and waiting):
                self._end(watcher, reply.errnum, reply.text)
            elif not watcher.outside and watcher.space.startswith("job-"):
                self._watch_outside(watcher)
            return
        found = reply.obj or {}
        watcher.present = True
        watcher.seq = version["rootseq"] if version is not None else found["rootseq"]
        if found.get("outside"):
            self._watch_outside(watcher)
        if "val" not in found:
            if waiting:
                self._next(watcher)
            else:
                self._end(watcher, errno.ENOENT)
        elif watcher.in_parts:
            self._take_parts(watcher, found["val"])
        else:
            self._take(watcher, found["val"])

    def _take(self, watcher: Watcher, value: dict[str, Any]) -> None:
        comparing = watcher.flags & (WATCH_FULL | WATCH_UNIQ) or watcher.outside
        if not (comparing and value == watcher.previous):
            self.ctx.respond(watcher.msg, {"val": value})
        watcher.previous = value
        self._sent(watcher)

    def _sent(self, watcher: Watcher) -> None:
        if watcher.sentinel:
            watcher.sentinel = False
            self.ctx.respond(watcher.msg)
        if watcher.flags & WATCH:
            self._next(watcher)
        elif watcher.msg.streaming:
            self._end(watcher, errno.ENODATA)
        else:
            self._drop(watcher)

    def _take_parts(self, watcher: Watcher, value: dict[str, Any]) -> None:
        """Send appended values. Each blob of a valref is sent separately, as in Flux."""
        kind, data = value["type"], value["data"]
        what = "watched with WATCH_APPEND" if watcher.flags & WATCH_APPEND else "streamed"
        old = watcher.previous
        if kind not in ("val", "valref"):
            wrong = errno.EISDIR if kind in ("dir", "dirref") and old is None else errno.EINVAL
            self._end(watcher, wrong, f"{kind} cannot be {what}")
            return
        watcher.previous = value
        if kind == "valref":
            if old is not None and len(data) < watcher.parts:
                self._end(watcher, errno.EINVAL, "key watched with WATCH_APPEND shortened")
                return
            fresh, watcher.parts = data[watcher.parts :], len(data)
            self._send_blobs(watcher, deque(fresh))
            return
        if old is None:
            watcher.parts = 1
            self.ctx.respond(watcher.msg, {"val": value})
        elif old != value:
            before = base64.b64decode(old["data"]) if watcher.outside and old["type"] == "val" else None
            after = base64.b64decode(data)
            if before is None or not after.startswith(before):
                self._end(watcher, errno.EINVAL, "value of key watched with WATCH_APPEND overwritten")
                return
            self.ctx.respond(watcher.msg, {"val": val_treeobj(after[len(before) :])})
        self._sent(watcher)

    def _send_blobs(self, watcher: Watcher, refs: deque[str]) -> None:
        if not refs:
            self._sent(watcher)
            return
        watcher.busy = True

        def loaded(reply: Message) -> None:
            watcher.busy = False
            if not watcher.live:
                return
            if reply.errnum:
                self._end(watcher, reply.errnum, f"{refs[0]}: {reply.text}" if reply.text else "")
                return
            refs.popleft()
            self.ctx.respond(watcher.msg, {"val": val_treeobj(reply.payload or b"")})
            self._send_blobs(watcher, refs)

        self.ctx.call("content.load", None, loaded, payload=bytes.fromhex(refs[0].partition("-")[2]))

    def _watch_outside(self, watcher: Watcher) -> None:
        watcher.outside = True
        if not self._polling:
            self._polling = True
            self.ctx.call_later(_POLL, self._poll)

    def _poll(self) -> None:
        outside = [watcher for watcher in self._all() if watcher.outside]
        self._polling = bool(outside)
        if outside:
            self.ctx.call_later(_POLL, self._poll)
        for watcher in outside:
            if not watcher.busy and not watcher.todo:
                watcher.todo.append(None)
                self._next(watcher)

    def _end(self, watcher: Watcher, errnum: int, text: str = "") -> None:
        self._drop(watcher)
        self.ctx.respond_error(watcher.msg, errnum, text)

    def _drop(self, watcher: Watcher) -> None:
        watcher.live = False
        watchers = self.watchers.get(watcher.space, [])
        if watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self.watchers[watcher.space]

    def unload(self) -> None:
        for watcher in self._all():
            self._end(watcher, errno.ENOSYS, "kvs-watch was unloaded")

    def stats(self) -> dict[str, Any]:
        return {
            "watchers": len(self._all()),
            "namespace-count": len(self.watchers),
            "namespaces": {
                name: {"rootseq": max(watcher.seq for watcher in watchers), "watchers": len(watchers)}
                for name, watchers in self.watchers.items()
            },
        }


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args)
    watch = Watch(ctx)
    ctx.service(NAME, {"lookup": watch.lookup, "cancel": watch.cancel}, open=("lookup", "cancel"), requests=KVS_WATCH)
    ctx.on_disconnect(watch.disconnected)
    ctx.on_stats(watch.stats)
    ctx.on_unload(watch.unload)
