"""The interface of modules to their broker: the context that a module is loaded with (RFC 5, RFC 6).

A module registers handlers and returns; after that, it runs only in callbacks of the broker's loop. The context does
what all modules need: role checks (RFC 12), streams that end on cancel or disconnect, and the bookkeeping for a
complete unload. Its parts are calls of other services (`calls.py`), tasks and timers (`background.py`) and the methods
that every module has (`default_methods.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.answers import EMPTY, Empty, RpcError
from headrace.engine.broker.module.background import Background
from headrace.engine.broker.module.calls import Calls
from headrace.engine.broker.module.default_methods import DefaultMethods
from headrace.engine.broker.module.privacy import guarded
from headrace.engine.broker.module.streams import StreamSet
from headrace.engine.broker.module.suspended import Resumption, SuspendedModule
from headrace.engine.broker.router import new_uuid
from headrace.engine.broker.tbon.outstanding import sender_of
from headrace.engine.process.garbage import give_memory_back, shrink
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message, MessageError
from headrace.formats.spec.payload import mismatch
from headrace.formats.spec.requests.broker import EVERY_MODULE

if TYPE_CHECKING:
    from headrace.engine.broker.kept import Kept
    from headrace.engine.broker.parts import Agent, BrokerParts, Tree
    from headrace.engine.broker.router import Peer
    from headrace.formats.spec.payload import Form, Methods

__all__ = ["EMPTY", "FINALIZING", "INIT", "RUNNING", "Empty", "ModuleContext", "RpcError", "StreamSet"]

# The state of a module in `module list` (RFC 5).
INIT, RUNNING, FINALIZING = 0, 1, 2

# Tables are rebuilt after _MANY entries were removed, _SHRINK_AFTER seconds later: a dictionary keeps the memory of its
# largest size.
_MANY = 10_000
_SHRINK_AFTER = 2.0

Handler = Callable[[Message], Any]

_OWNER_ONLY = "Request requires owner credentials"


class ModuleContext:
    """The broker as module `name` sees it.

    `uuid` is the module's address in route stacks, `owner` the uid of the instance. `at_flush(fn)` calls `fn` once,
    after the messages of this loop turn are delivered; messages that `fn` sends are delivered in the same turn.
    `at_turn_end(fn)` calls `fn` after all of these, for writes that leave the process or wait for a disk. `call`,
    `rpc`, `cancel` and `forget` are methods of `Calls`; `spawn`, `call_soon` and `call_later` of `Background`.
    """

    # Done when the unload that has begun is complete.
    _end: asyncio.Future[None] | None = None

    def __init__(self, broker: BrokerParts, name: str, path: str = "builtin", uuid: str = "") -> None:
        self._broker = broker
        self._router = broker.router
        self.name = name
        self.path = path
        self.uuid = uuid or new_uuid()
        self.loop = broker.loop
        self.rank = broker.rank
        self.owner = broker.owner
        self.attrs = broker.attrs
        self.status = RUNNING
        # Called with every message while a module.trace runs: module name, "rx" or "tx", message.
        self.tracer: Callable[[str, str, Message], None] | None = None
        self.services: list[str] = []
        self.last_used = time.monotonic()
        # Set by a module that is suspended on removal, and resumed when it is loaded again.
        self.resumption: Resumption | None = None
        self.suspended: SuspendedModule | None = None
        self.at_flush = broker.router.at_flush
        self.at_turn_end = broker.router.at_turn_end
        route = self.uuid.encode()
        self._background = background = Background(self.loop, self.log, self._refuse_unloaded)
        self._unanswered = background.unanswered
        self._guard = background.guard
        self.spawn = background.spawn
        self.call_soon = background.call_soon
        self.call_later = background.call_later
        self._calls = calls = Calls(self._router, route, self.owner, self._send_request)
        self.call = calls.call
        self.rpc = calls.rpc
        self.cancel = calls.cancel
        self.forget = calls.forget
        # The flags set by debug requests.
        self.debug = 0
        self._defaults = DefaultMethods(self, route)
        self.stats = self._defaults.stats
        self.set_debug = self._defaults.set_debug
        self._methods: dict[str, tuple[Handler, bool, Form | None]] = {}
        self._tables: list[Callable[[], Iterable[dict[Any, Any]]]] = []
        self._removed = 0
        self._streams: dict[str, StreamSet] = {}
        self._subscriptions: list[tuple[str, Callable[[Message], None]]] = []
        self._disconnects: list[Callable[[str], None]] = []
        self._config_hooks: list[Callable[[dict[str, Any]], None]] = []
        self._unload_hooks: list[Callable[[], Any]] = []
        self._router.add_peer(self)

    @property
    def config(self) -> dict[str, Any]:
        return self._broker.config

    @property
    def size(self) -> int:
        """The number of brokers in the instance, which may grow."""
        return self._broker.size

    @property
    def alone(self) -> bool:
        """True if the instance has only this broker and will not grow."""
        return self._broker.size == 1 and not self._broker.may_grow

    @property
    def lost(self) -> Idset:
        """Lost ranks that have not rejoined, except those that left in order; empty in a module's own process."""
        return self._broker.lost

    @property
    def kept(self) -> dict[str, Kept] | None:
        """Data that modules pass to their next load, by name.

        None in a module's own process, which ends with the module.
        """
        return self._broker.kept

    @property
    def agent(self) -> Agent | None:
        """The exec agent of this node, or None if no jobs can run.

        Raises AttributeError in a module's own process.
        """
        return self._broker.agent

    @property
    def tree(self) -> Tree:
        """The tree of brokers. Raises AttributeError in a module's own process."""
        return self._broker.overlay

    @staticmethod
    def now() -> float:
        return time.time()

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    @staticmethod
    def thread_time() -> float:
        """Seconds of processor time that the thread of the loop has used."""
        return time.thread_time()

    def log(self, level: int, text: str) -> None:
        """Append to the broker's log. `level` is a syslog severity or a level of the logging module."""
        self._broker.log(level, f"{self.name}", text)

    def service(
        self,
        name: str,
        methods: Mapping[str, Handler],
        roles: int = m.ROLE_OWNER,
        open: Iterable[str] = (),
        requests: Methods | None = None,
    ) -> None:
        """Provide service `name`. Methods in `open` are for every user, the rest for role OWNER (RFC 12).

        `requests` has the form of each method's payload. A request with another payload gets EPROTO and does not reach
        the handler. Raises RpcError(EEXIST) if another module already provides the service, and LookupError for a
        method without a form.
        """
        owner = self._router.services.get(name)
        if owner is not None and owner is not self:
            raise RpcError(errno.EEXIST, f"service {name} is already registered")
        self._router.provide(name, self)
        if name not in self.services:
            self.services.append(name)
        allowed = set(open)
        for method, handler in methods.items():
            if requests is not None and method not in requests:
                raise LookupError(f"{name}.{method}: the form of its payload is missing in spec/requests")
            wanted = None if requests is None else requests[method]
            if method == "stats-get":
                handler = guarded(self, handler)
            self._methods[f"{name}.{method}"] = (handler, method in allowed or roles == m.ROLE_USER, wanted)

    def unservice(self, name: str) -> None:
        """Stop providing `name`."""
        if name in self.services:
            self.services.remove(name)
            self._router.withdraw(name)
            for topic in [topic for topic in self._methods if topic.startswith(name + ".")]:
                del self._methods[topic]

    def delegate(self, name: str, peer: Peer) -> None:
        """Let `peer`, another provider, respond to requests for service `name` until `end_delegation`."""
        self._router.services[name] = peer

    def end_delegation(self, name: str) -> None:
        """End the delegation of service `name`, which then has no provider."""
        self._router.services.pop(name, None)

    def is_here(self, msg: Message) -> bool:
        """True if the request was sent by a client or module of this broker that is still connected."""
        return self._router.local_peer(msg) is not None

    def forward(self, msg: Message) -> None:
        """Route a request unchanged: its response goes to the senders in its route stack, not to this module."""
        self._unanswered.discard(msg)
        self._router.request(msg)

    def send(self, msg: Message) -> None:
        """Deliver a message to this module (the router calls this)."""
        if self.suspended is not None and self.suspended.take(msg):
            return
        self.last_used = time.monotonic()
        if self.tracer is not None:
            self.tracer(self.name, "rx", msg)
        kind = msg.type
        if kind == m.REQUEST:
            if self._end is not None and self._end.done():
                # The request was in the router's queue when the module was unloaded.
                self._refuse_unloaded(msg)
            else:
                self._request(msg)
        elif kind == m.RESPONSE:
            on_reply = self._calls.callback(msg)
            if on_reply is not None:
                self._guard(on_reply, msg)
        elif kind == m.EVENT and msg.rolemask & m.ROLE_OWNER:
            # Any user may publish events. Services must not act on a guest's events, so only clients get them (RFC 12).
            for prefix, listener in list(self._subscriptions):
                if msg.topic.startswith(prefix):
                    self._guard(listener, msg)

    def _request(self, msg: Message) -> None:
        entry = self._methods.get(msg.topic)
        if entry is None:
            try:
                self._default(msg)
            except Exception as exc:
                self._failed(msg, exc)
            return
        handler, everyone, wanted = entry
        if not everyone and not msg.rolemask & m.ROLE_OWNER:
            self.respond_error(msg, errno.EPERM, _OWNER_ONLY)
            return
        try:
            if wanted is not None:
                wrong = mismatch(wanted, msg.obj)
                if wrong:
                    self.respond_error(msg, errno.EPROTO, f"{msg.topic}: {wrong}")
                    return
            result = handler(msg)
        except Exception as exc:
            self._failed(msg, exc)
            return
        if result is None:
            return
        if isinstance(result, dict):
            self.respond(msg, result)
        elif result is EMPTY:
            self.respond(msg)
        else:
            task = self.spawn(self._finish(msg, result), (msg,))
            if asyncio.iscoroutine(result):
                # Close the coroutine: if the task is cancelled before its first step, Python warns that it was never
                # awaited.
                task.add_done_callback(lambda _task: result.close())

    async def _finish(self, msg: Message, pending: Awaitable[Any]) -> None:
        try:
            result = await pending
        except Exception as exc:
            # Break a reference cycle that would keep the request: the error refers to this frame, and the future to the
            # error.
            del pending
            self._failed(msg, exc)
            return
        if isinstance(result, dict):
            self.respond(msg, result)
        elif result is EMPTY:
            self.respond(msg)

    def _failed(self, msg: Message, exc: Exception) -> None:
        if isinstance(exc, RpcError):
            self.respond_error(msg, exc.errnum, exc.text)
        elif isinstance(exc, MessageError):
            self.respond_error(msg, errno.EPROTO, str(exc))
        elif isinstance(exc, (KeyError, TypeError, ValueError, AttributeError)) and _raised_near_handler(exc):
            # Most often an invalid field in the request, so the place in the code is logged only for debugging.
            where = traceback.extract_tb(exc.__traceback__)[-1]
            place = f"{where.filename}:{where.lineno}"
            self.log(logging.DEBUG, f"{msg.topic}: {type(exc).__name__}: {exc} at {place}")
            text = f"missing field {exc}" if isinstance(exc, KeyError) else str(exc)
            self.respond_error(msg, errno.EPROTO, f"{msg.topic}: {text}")
        else:
            self.log(logging.ERROR, f"{msg.topic}: {traceback.format_exc()}")
            self.respond_error(msg, errno.EIO, f"{msg.topic}: internal error: {exc}")

    def _default(self, msg: Message) -> None:
        method = msg.topic.rpartition(".")[2]
        wanted = EVERY_MODULE.get(method)
        wrong = mismatch(wanted, msg.obj) if wanted is not None else ""
        if wrong:
            self.respond_error(msg, errno.EPROTO, f"{msg.topic}: {wrong}")
        elif method in self._defaults.for_guests:
            self._defaults.for_guests[method](msg)
        elif method == "disconnect":
            self._disconnected(msg)
        elif method == "cancel" or method.endswith("-cancel"):
            tag = (msg.obj or {}).get("matchtag")
            sender = sender_of(msg)
            named = self._streams.get(method[: -len("-cancel")]) if method != "cancel" else None
            for streams in [named] if named is not None else list(self._streams.values()):
                streams.cancel(sender, tag if isinstance(tag, int) else -1)
        elif not msg.rolemask & m.ROLE_OWNER:
            self.respond_error(msg, errno.EPERM, _OWNER_ONLY)
        elif method in self._defaults.for_owner:
            self._defaults.for_owner[method](msg)
        elif method == "config-reload":
            for hook in self._config_hooks:
                hook(self.config)
            self.respond(msg)
        elif method == "shutdown":
            self._broker.remove_module(self.name)
        else:
            self.respond_error(msg, errno.ENOSYS, f"Unknown service method '{method}'")

    def _disconnected(self, msg: Message) -> None:
        sender = sender_of(msg)
        for streams in self._streams.values():
            streams.cancel(sender, None)
        for hook in self._disconnects:
            self._guard(hook, sender.decode("ascii", "replace"))

    def respond(self, msg: Message, obj: Mapping[str, Any] | None = None, payload: bytes | None = None) -> None:
        """Send a success response. A streaming request may have any number of them."""
        if not msg.flags & m.FLAG_NORESPONSE:
            if not msg.flags & m.FLAG_STREAMING:
                self._unanswered.discard(msg)
            self._answer(m.response(msg, obj, 0, payload))

    def respond_error(self, msg: Message, errnum: int, text: str = "") -> None:
        """Send an error response. It ends a stream (ENODATA is the normal end, RFC 6)."""
        if not msg.flags & m.FLAG_NORESPONSE:
            self._unanswered.discard(msg)
            self._answer(m.error_response(msg, errnum, text))

    def _answer(self, msg: Message) -> None:
        if self.tracer is not None:
            self.tracer(self.name, "tx", msg)
        self._router.response(msg)

    def _send_request(self, msg: Message) -> None:
        if self.tracer is not None:
            self.tracer(self.name, "tx", msg)
        self._router.request(msg)

    def on_growth(self, fn: Callable[[Idset], None]) -> None:
        """Register `fn`, called with the ranks of added hosts once the tree includes them."""
        self._broker.on_grown.append(fn)
        self.on_unload(lambda: self._broker.on_grown.remove(fn))

    def streams(self, method: str) -> StreamSet:
        """The streams of `method`, created on first use. `METHOD-cancel` and disconnects end its entries."""
        found = self._streams.get(method)
        if found is None:
            found = self._streams[method] = StreamSet(self)
        return found

    def publish(self, topic: str, obj: dict[str, Any] | None = None, private: bool = False) -> None:
        """Publish an event through rank 0, which numbers it."""
        msg = m.event(topic, obj, m.FLAG_PRIVATE if private else 0)
        if self.tracer is not None:
            self.tracer(self.name, "tx", msg)
        self._broker.events.publish(msg)

    def subscribe(self, prefix: str, callback: Callable[[Message], None]) -> None:
        self._subscriptions.append((prefix, callback))
        self._broker.events.subscribe(self, prefix)

    def unsubscribe(self, prefix: str) -> None:
        self._subscriptions = [entry for entry in self._subscriptions if entry[0] != prefix]
        self._broker.events.unsubscribe(self, prefix)

    def watch_tables(self, tables: Callable[[], Iterable[dict[Any, Any]]]) -> None:
        """Shrink the tables that `tables()` returns after they have lost most entries (see `removed`).

        For tables that may grow to 100,000 entries.
        """
        self._tables.append(tables)

    def removed(self, count: int = 1) -> None:
        """Count entries that were removed from the tables of `watch_tables`. After thousands, memory is freed."""
        self._removed += count
        if self._removed >= _MANY:
            self._removed = 0
            self.call_later(_SHRINK_AFTER, self._shrink)

    def _shrink(self) -> None:
        tables = [self._calls.pending, *(table for tables in self._tables for table in tables())]
        if any([shrink(table) for table in tables]):
            give_memory_back()

    def _refuse_unloaded(self, msg: Message) -> None:
        self.respond_error(msg, errno.ENOSYS, f"{self.name} was unloaded")

    def on_disconnect(self, fn: Callable[[str], None]) -> None:
        self._disconnects.append(fn)

    def on_config(self, fn: Callable[[dict[str, Any]], None]) -> None:
        """Register `fn(config)`, which checks and applies a reloaded configuration.

        `fn` raises RpcError(EINVAL) to refuse it.
        """
        self._config_hooks.append(fn)

    def on_stats(self, fn: Callable[[], dict[str, Any]]) -> None:
        self._defaults.stats_hooks.append(fn)

    def on_stats_clear(self, fn: Callable[[], None]) -> None:
        """Register `fn`, called to reset counters.

        It is called for a request to this module, and for an event to all modules of its name.
        """
        if not self._defaults.clear_hooks:
            self.subscribe(f"{self.name}.stats-clear", lambda _msg: self._defaults.clear_stats())
        self._defaults.clear_hooks.append(fn)

    def on_unload(self, fn: Callable[[], Any]) -> None:
        self._unload_hooks.append(fn)

    async def reconfigure(self, config: dict[str, Any]) -> None:
        """Apply a reloaded configuration. Raises RpcError if the module refuses it."""
        for hook in self._config_hooks:
            hook(config)

    async def unload(self) -> None:
        """Run the unload hooks, then remove every service, stream, timer and task."""
        if self._end is not None:
            # Another request, or the shutdown of the broker, is already unloading the module.
            await asyncio.shield(self._end)
            return
        self._end = self.loop.create_future()
        try:
            await self._run_unload_hooks()
            self._release_all()
        finally:
            self._end.set_result(None)

    async def _run_unload_hooks(self) -> None:
        for hook in reversed(self._unload_hooks):
            try:
                result = hook()
                if hasattr(result, "__await__"):
                    await result
            except Exception:
                self.log(logging.ERROR, f"unload: {traceback.format_exc()}")

    def _release_all(self) -> None:
        for streams in self._streams.values():
            for msg in streams:
                self._refuse_unloaded(msg)
        # Services must end their streams to this module (RFC 6), so that, for example, resources can be acquired again.
        for service, nodeid in set(self._calls.streaming()):
            self.call(service + ".disconnect", None, None, nodeid)
        self._router.remove_peer(self)
        for prefix, _ in self._subscriptions:
            self._broker.events.unsubscribe(self, prefix)
        self._background.cancel_all()


def _raised_near_handler(exc: BaseException) -> bool:
    """True if `exc` was raised in the handler or just below it, where the request is read."""
    depth = 0
    trace = exc.__traceback__
    while trace is not None:
        depth += 1
        trace = trace.tb_next
    return depth <= 4
