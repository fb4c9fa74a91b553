"""`flux.Flux`: a connection to a broker, with its remote procedure calls, events and reactor."""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Union

from flux.constants import FLUX_MATCHTAG_NONE as MATCHTAG_NONE
from flux.constants import FLUX_MSGTYPE_ANY as MSGTYPE_ANY
from flux.constants import FLUX_REACTOR_NOWAIT, FLUX_REACTOR_ONCE
from flux.core.watchers import FDWatcher, MessageWatcher, SignalWatcher, TimerWatcher, TurnWatcher
from flux.future import not_ignoring_interrupts
from flux.message import Message, encoded, to_text
from flux.rpc import RPC
from headrace.formats.spec.message import ROLE_OWNER, error_response, response
from headrace.formats.spec.message import Message as RawMessage
from headrace.wire.client.handle import NODEID_ANY, Handle
from headrace.wire.client.reactor import Reactor

if TYPE_CHECKING:
    from flux.kvs import KVSTxn


def _connect(url: Optional[str]) -> Handle:
    if url is not None and url.startswith("loop://"):
        from headrace.wire.client.loop import LoopHandle

        return LoopHandle()
    return Handle(url)


class Flux:
    """A broker connection. `url` is a URI like FLUX_URI, or `loop://` for testing. Not thread-safe.

    Raises OSError (FileNotFoundError and so on) if the broker cannot be reached.
    """

    def __init__(self, url: Optional[str] = None, flags: int = 0, handle: Optional[Handle] = None) -> None:
        self.handle = handle if handle is not None else _connect(url if url is None else os.fsdecode(url))
        self._reactor: Optional[Reactor] = None
        self._running = False
        self._failure: Optional[BaseException] = None
        self._status = 0
        self._config: Any = None
        self.message_watchers: List[MessageWatcher] = []
        self.kvs_txn: Optional[KVSTxn] = None

    def close(self) -> None:
        self.handle.close()

    def __enter__(self) -> Flux:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def reactor(self) -> Reactor:
        """The reactor of this handle's futures and watchers."""
        if self._reactor is None:
            self._reactor = Reactor()
            self._reactor.add_handle(self.handle)
        return self._reactor

    def get_reactor(self) -> Reactor:
        return self.reactor

    def rpc(self, topic: Union[str, bytes], payload: Any = None, nodeid: int = NODEID_ANY, flags: int = 0) -> RPC:
        """Send a request; `.get()` returns the response. `payload` is an object, or JSON text."""
        return RPC(self, topic, payload, nodeid, flags)

    def attr_get(self, attr_name: str) -> str:
        """A broker attribute. Raises FileNotFoundError for one that is not set."""
        return self.handle.attr_get(attr_name)

    def attr_set(self, attr: str, value: str) -> None:
        """Set a broker attribute. Raises ValueError for anything but strings, OSError if it cannot be changed."""
        for what, text in (("name", attr), ("value", value)):
            if not isinstance(text, str):
                raise ValueError(f"an attribute's {what} is a string, not {type(text).__name__}")
        self.rpc("attr.set", {"name": attr, "value": value}).get()

    def attr_remove(self, attr: str) -> None:
        """Remove a broker attribute.

        Raises ValueError for anything but a string, OSError if it cannot be removed.
        """
        if not isinstance(attr, str):
            raise ValueError(f"an attribute's name is a string, not {type(attr).__name__}")
        self.rpc("attr.rm", {"name": attr}).get()

    def conf_get(self, key: Optional[str] = None, default: Any = None, update: bool = False) -> Any:
        """The configuration, or the value of a dotted `key`; requested only once, and again with `update`."""
        if self._config is None or update:
            self._config = self.rpc("config.get").get() or {}
        value = self._config
        for part in key.split(".") if key else []:
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def barrier(self, name: str, nprocs: int) -> RPC:
        """Wait until `nprocs` handles have entered the barrier `name` (the module `barrier` must be loaded).

        Raises OSError: ECONNABORTED if a handle entered twice or left, ENOSYS without the module.
        """
        call = self.rpc("barrier.enter", {"name": name, "nprocs": nprocs})
        call.get()
        return call

    def get_rank(self) -> int:
        return int(self.attr_get("rank"))

    def log(self, level: int, fstring: Union[str, bytes]) -> None:
        """Append to the broker's log; `level` is a syslog severity."""
        import datetime

        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = f"<{8 | level}>1 {now} {self.get_rank()} python - - - {to_text(fstring)}"
        self.handle.rpc("log.append", payload=line.encode() + b"\0").get_raw()

    def event_subscribe(self, topic: Union[str, bytes]) -> int:
        self.handle.subscribe(to_text(topic))
        return 0

    def event_unsubscribe(self, topic: Union[str, bytes]) -> int:
        """Unsubscribe. Raises FileNotFoundError without a subscription."""
        self.handle.unsubscribe(to_text(topic))
        return 0

    def event_create(self, topic: Union[str, bytes], payload: Any = None) -> Message:
        """An event for `send`; `payload` is an object, or text that is sent unchanged."""
        return Message.from_event_encode(topic, payload)

    def event_recv(self, topic: Optional[str] = None) -> Message:
        """Wait for the next event (whose topic starts with `topic`)."""
        while True:
            msg = self.handle.next_event()
            if msg is not None and (topic is None or msg.topic.startswith(to_text(topic))):
                return Message(message=msg)

    def event_send(self, topic: Union[str, bytes], payload: Any = None) -> int:
        return self.send(self.event_create(topic, payload))

    def send(self, message: Message, flags: int = 0) -> int:
        self.handle.send(message.message)
        return 0

    def recv(
        self,
        type_mask: int = MSGTYPE_ANY,
        match_tag: int = MATCHTAG_NONE,
        topic_glob: Optional[str] = None,
        flags: int = 0,
    ) -> Message:
        """Wait for an event, a request, or a response to a message of `send`, with these types and topics.

        `match_tag` is the matchtag of the expected response.
        """
        while True:
            for queue in self.handle.unclaimed(type_mask):
                for msg in list(queue):
                    wanted = match_tag in (MATCHTAG_NONE, msg.matchtag)
                    if wanted and (topic_glob is None or fnmatch.fnmatchcase(msg.topic, topic_glob)):
                        queue.remove(msg)
                        return Message(message=msg)
            self.handle.pump()

    def respond(self, message: Message, payload: Any = None) -> int:
        """Respond to a request to a service of this handle, unless the request is marked `noresponse`."""
        return self._respond(message, response(message.message, payload=encoded(payload)))

    def respond_error(self, message: Message, errnum: int, text: Optional[str] = None) -> int:
        """Respond with an error; EINVAL for an `errnum` of 0 or less."""
        return self._respond(message, error_response(message.message, max(errnum, 0) or errno.EINVAL, text or ""))

    def _respond(self, request: Message, answer: RawMessage) -> int:
        if not request.message.noresponse:
            self.handle.send(answer)
        return 0

    def msg_watcher_create(
        self,
        callback: Callable[..., Any],
        type_mask: int = MSGTYPE_ANY,
        topic_glob: Union[str, bytes] = "*",
        args: Any = None,
        match_tag: int = 0,
        rolemask: Optional[int] = None,
    ) -> MessageWatcher:
        """A watcher that calls `callback(handle, watcher, message, args)` for messages (see MessageWatcher)."""
        return MessageWatcher(self, type_mask, callback, to_text(topic_glob), args, rolemask)

    def msg_handler_allow_rolemask(self, handler: Any, rolemask: int) -> None:
        """Also accept requests of users with a role in `rolemask` in a message watcher, given by its `handle`."""
        handler.rolemask |= rolemask

    def msg_handler_deny_rolemask(self, handler: Any, rolemask: int) -> None:
        """Undo `msg_handler_allow_rolemask`; the owner's requests are always accepted."""
        handler.rolemask = handler.rolemask & ~rolemask | ROLE_OWNER

    def timer_watcher_create(
        self, after: float, callback: Callable[..., Any], repeat: float = 0.0, args: Any = None
    ) -> TimerWatcher:
        return TimerWatcher(self, after, callback, repeat, args)

    def fd_watcher_create(
        self, fd_int: int, callback: Callable[..., Any], events: Optional[int] = None, args: Any = None
    ) -> FDWatcher:
        return FDWatcher(self, fd_int, events, callback, args)

    def signal_watcher_create(self, signum: int, callback: Callable[..., Any], args: Any = None) -> SignalWatcher:
        return SignalWatcher(self, signum, callback, args)

    def prepare_watcher_create(self, callback: Callable[..., Any], args: Any = None) -> TurnWatcher:
        """A watcher that fires each time before the reactor waits."""
        return TurnWatcher(self, "prepare", callback, args)

    def check_watcher_create(self, callback: Callable[..., Any], args: Any = None) -> TurnWatcher:
        """A watcher that fires each time after the reactor has waited."""
        return TurnWatcher(self, "check", callback, args)

    def idle_watcher_create(self, callback: Callable[..., Any], args: Any = None) -> TurnWatcher:
        """A watcher that fires whenever no other watcher does; while it is started, the reactor does not wait."""
        return TurnWatcher(self, "idle", callback, args)

    def in_reactor(self) -> bool:
        return self._running

    def reactor_run(self, reactor: Any = None, flags: int = 0) -> int:
        """Run until `reactor_stop`, or until there is nothing to wait for; raises an exception of a callback.

        With FLUX_REACTOR_ONCE in `flags`, run one turn that handles events; with FLUX_REACTOR_NOWAIT, do not wait.
        Returns -1 after `reactor_stop_error`, 0 if there is nothing to wait for, otherwise a positive number.
        """
        self._status = 0
        self._running = True
        try:
            with not_ignoring_interrupts(signal.default_int_handler):
                has_watchers = self._run_reactor(flags)
        finally:
            self._running = False
        self.raise_if_exception()
        return self._status or int(has_watchers)

    def _run_reactor(self, flags: int) -> bool:
        if flags & (FLUX_REACTOR_ONCE | FLUX_REACTOR_NOWAIT):
            return self.reactor.step(wait=not flags & FLUX_REACTOR_NOWAIT)
        return self.reactor.run(until_idle=True)

    def reactor_stop(self, reactor: Any = None) -> None:
        self.reactor.stop()

    def reactor_stop_error(self, reactor: Any = None) -> None:
        self._status = -1
        self.reactor.stop()

    def set_exception(self, exception: Optional[BaseException]) -> None:
        self._failure = exception

    def raise_if_exception(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def guard(self, fn: Callable[..., Any], *args: Any) -> bool:
        """Run a user's callback. Returns False after an exception.

        The exception stops the reactor, and `reactor_run` raises it.
        """
        try:
            fn(*args)
        except BaseException as exc:
            self.set_exception(exc)
            self.reactor_stop_error()
            return False
        return True

    def service_register(self, name: str) -> RPC:
        return self.rpc("service.add", {"service": name})

    def service_unregister(self, name: str) -> RPC:
        return self.rpc("service.remove", {"service": name})
