"""The handle: one connection to a broker, and remote procedure calls over it (RFC 6).

Commands, `import flux` and the local runner all use this file, so it is synchronous, small and quick to import.
Responses are assigned to their calls by matchtag; other messages are queued in order of arrival. No message is dropped:
a call keeps its responses until `get`, an iteration or a reactor consumes them.
"""

from __future__ import annotations

import errno
import os
import select
import time
from heapq import heappop, heappush

from headrace.formats.spec.message import (
    EVENT,
    FLAG_STREAMING,
    FLAG_UPSTREAM,
    MATCHTAG_NONE,
    NODEID_ANY,
    NODEID_UPSTREAM,
    REQUEST,
    RESPONSE,
    Deframer,
    Message,
    frame,
    request,
)
from headrace.formats.spec.message import event as make_event
from headrace.formats.spec.stdlib_parts import deque, socket
from headrace.wire.client.transport import DEFAULT_URI, claimed_credentials, connect, through_proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Iterator, List, Optional

__all__ = ["NODEID_ANY", "Handle", "Rpc"]

_RECV_SIZE = 1 << 18
# The longest timeout in seconds; poll(2) takes milliseconds as an int.
_LONGEST = 2e6


def response_error(msg: Message) -> OSError:
    """The exception for a failed response, with its errno and its text, by default the text of the errno."""
    return OSError(msg.errnum, msg.text or os.strerror(msg.errnum))


class Rpc:
    """A call. Get responses with `get()`, by iterating over a streaming call, or by a callback (`then`)."""

    __slots__ = ("_callback", "_handle", "_inbox", "done", "matchtag", "nodeid", "topic")

    def __init__(self, handle: Handle, topic: str, nodeid: int, matchtag: int) -> None:
        self._handle = handle
        self._inbox: Deque[Message] = deque()
        self._callback: Optional[Callable[[Rpc], None]] = None
        self.topic = topic
        self.nodeid = nodeid
        self.matchtag = matchtag
        self.done = False

    def next_message(self, timeout: Optional[float] = None) -> Message:
        """The next response message, failed or not. Raises TimeoutError after `timeout` seconds."""
        inbox = self._inbox
        if not inbox:
            if self.done:
                raise OSError(errno.ENODATA, f"{self.topic}: the call has no more responses")
            limit = None if timeout is None else time.monotonic() + timeout
            while not inbox:
                remaining = None if limit is None else limit - time.monotonic()
                if (remaining is not None and remaining < 0) or not self._handle.pump(remaining):
                    raise TimeoutError(errno.ETIMEDOUT, f"{self.topic}: no response within {timeout} s")
        return inbox.popleft()

    def get(self, timeout: Optional[float] = None) -> Any:
        """The next response's object (None without payload). Raises OSError with the broker's errno and text."""
        msg = self.next_message(timeout)
        if msg.errnum:
            raise response_error(msg)
        return msg.obj

    def get_raw(self) -> bytes:
        """The next response's payload, for services that answer with bytes (RFC 10)."""
        msg = self.next_message()
        if msg.errnum:
            raise response_error(msg)
        return msg.payload or b""

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    return
                raise

    @property
    def ready(self) -> bool:
        return bool(self._inbox)

    @property
    def has_callback(self) -> bool:
        return self._callback is not None

    def then(self, callback: Callable[[Rpc], None]) -> Rpc:
        """Register `callback(self)`, which a reactor calls for each response; the callback must call `get()`."""
        self._callback = callback
        if self._inbox:
            self._handle.mark_ready(self)
        return self

    def abandon(self) -> None:
        """Remove the callback, and drop further responses."""
        self._callback = None
        self._inbox.clear()
        self._handle.forget(self)

    def run_callbacks(self) -> None:
        """Call the callback for every response that has arrived; for the handle's event loop."""
        while self._inbox and self._callback is not None:
            first = self._inbox[0]
            self._callback(self)
            # If the callback waited for other calls, it may have consumed this response already.
            if self._inbox and self._inbox[0] is first:
                self._inbox.popleft()

    def deliver(self, msg: Message) -> None:
        """Add a response that the handle has read."""
        self._inbox.append(msg)
        if self._callback is not None:
            self._handle.mark_ready(self)

    def cancel(self, topic: str = "") -> None:
        """Ask the service to end this streaming call with an error response.

        A call that has ended is not affected.
        """
        if not self.done:
            self._handle.rpc_noreply(topic or self.topic + "-cancel", {"matchtag": self.matchtag}, self.nodeid)


class Handle:
    """A connection to the broker at `uri` (default: FLUX_URI or the system instance), or over `sock`.

    Not thread-safe. Raises OSError if the broker cannot be reached; its text is for users.
    """

    __slots__ = (
        "_calls",
        "_deframer",
        "_events",
        "_free_tags",
        "_next_tag",
        "_ready",
        "_requests",
        "_responses",
        "_role",
        "_sock",
        "_user",
        "message_callback",
        "message_types",
        "uri",
        "watching",
    )

    def __init__(self, uri: Optional[str] = None, sock: Optional[socket.socket] = None) -> None:
        if uri and uri[0] in "./":
            uri = enclosing(uri)
        self.uri = uri or os.environ.get("FLUX_URI") or DEFAULT_URI
        self._user, self._role = claimed_credentials()
        self._sock = connect(self.uri) if sock is None else sock
        self._deframer = Deframer()
        self._calls: Dict[int, Rpc] = {}
        self._free_tags: List[int] = []
        self._next_tag = 1
        self._events: Deque[Message] = deque()
        self._requests: Deque[Message] = deque()
        # Responses to requests that were sent as messages, not as calls.
        self._responses: Deque[Message] = deque()
        self._ready: Deque[Rpc] = deque()
        # The receiver of messages that belong to no call, the mask of their types, and the number of its watchers.
        self.message_callback: Optional[Callable[[Message], None]] = None
        self.message_types = 0
        self.watching = 0

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    # -- sending

    def send(self, msg: Message) -> None:
        """Send a message, with the claimed identity if there is one. Raises OSError if the connection is lost."""
        if self._user is not None:
            msg.userid = self._user
        if self._role is not None:
            msg.rolemask = self._role
        data = frame(msg)
        try:
            sent = self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None
        if sent < len(data):
            self._send_rest(data[sent:])

    def _send_rest(self, data: bytes) -> None:
        """Send the rest when the broker is ready, and read meanwhile: the broker may be waiting for that."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | select.POLLOUT)
        unsent = memoryview(data)
        while unsent:
            ((_, ready),) = poller.poll()
            if ready & ~select.POLLOUT:
                self.pump(0)
            if ready & select.POLLOUT:
                try:
                    unsent = unsent[self._sock.send(unsent, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None

    def rpc(
        self,
        topic: str,
        obj: Any = None,
        nodeid: int = NODEID_ANY,
        flags: int = 0,
        payload: Optional[bytes] = None,
    ) -> Rpc:
        """Call `topic` with a JSON object, or with an encoded `payload`; `flags` may include FLAG_STREAMING.

        `nodeid` is a rank, NODEID_ANY or NODEID_UPSTREAM.
        """
        if nodeid == NODEID_UPSTREAM:
            # An upstream request contains the rank of the sending broker, whose parent handles it (RFC 6).
            nodeid, flags = int(self.attr_get("rank")), flags | FLAG_UPSTREAM
        if self._free_tags:
            tag = heappop(self._free_tags)
        else:
            tag = self._next_tag
            self._next_tag += 1
        call = Rpc(self, topic, nodeid, tag)
        self._calls[tag] = call
        self.send(request(topic, obj, nodeid, tag, flags, payload=payload))
        return call

    def stream(self, topic: str, obj: Any = None, nodeid: int = NODEID_ANY) -> Rpc:
        """Call a streaming method (RFC 6): responses until an error response, which is ENODATA for success."""
        return self.rpc(topic, obj, nodeid, FLAG_STREAMING)

    def rpc_noreply(
        self, topic: str, obj: Any = None, nodeid: int = NODEID_ANY, payload: Optional[bytes] = None
    ) -> None:
        """Send a request without a response."""
        self.send(request(topic, obj, nodeid, payload=payload))

    # -- receiving

    def pump(self, timeout: Optional[float] = None) -> bool:
        """Read once from the broker and assign messages to calls and queues.

        Returns False if no data arrived within `timeout` seconds (None: no limit).
        """
        if timeout is not None and timeout > 0:
            poller = select.poll()
            poller.register(self._sock, select.POLLIN)
            if not poller.poll(min(timeout, _LONGEST) * 1000 + 0.5):
                return False
        try:
            data = self._sock.recv(_RECV_SIZE, 0 if timeout is None else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if not data:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._deframer.feed(data)
        for msg in self._deframer:
            self._sort(msg)
        return True

    def _sort(self, msg: Message) -> None:
        if msg.type == RESPONSE:
            tag = msg.matchtag
            call = self._calls.get(tag)
            if call is None:
                if tag == MATCHTAG_NONE:
                    self._responses.append(msg)
                return
            if msg.errnum or not msg.streaming:
                del self._calls[tag]
                heappush(self._free_tags, tag)
                call.done = True
            call.deliver(msg)
        elif msg.type == EVENT:
            self._events.append(msg)
        else:
            self._requests.append(msg)

    def forget(self, call: Rpc) -> None:
        """Drop the responses of a call. Its matchtag is not reused, because responses may still arrive."""
        if self._calls.get(call.matchtag) is call:
            del self._calls[call.matchtag]

    def mark_ready(self, call: Rpc) -> None:
        self._ready.append(call)

    def dispatch(self) -> bool:
        """Run the callbacks of all messages that were read; returns whether any ran. Called by the reactor."""
        worked = False
        while self._ready:
            worked = True
            self._ready.popleft().run_callbacks()
        for queue in self.unclaimed(self.message_types) if self.message_types else ():
            while queue and self.message_callback is not None:
                worked = True
                self.message_callback(queue.popleft())
        return worked

    def expected(self) -> int:
        """The number of calls and watchers whose callbacks may still be called."""
        return self.watching + sum(call.has_callback for call in self._calls.values())

    # -- events

    def subscribe(self, topic: str) -> None:
        """Receive events whose topic starts with `topic`."""
        self.rpc("event.subscribe", {"topic": topic}).get()

    def unsubscribe(self, topic: str) -> None:
        self.rpc("event.unsubscribe", {"topic": topic}).get()

    def next_event(self, timeout: Optional[float] = None) -> Optional[Message]:
        """The next subscribed event; None after `timeout` seconds."""
        limit = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            remaining = None if limit is None else limit - time.monotonic()
            if (remaining is not None and remaining < 0) or not self.pump(remaining):
                return None
        return self._events.popleft()

    def unclaimed(self, types: int) -> List[Deque[Message]]:
        """The queues of received messages of these types (a mask) that belong to no call.

        The caller removes the messages that it uses.
        """
        queues = ((EVENT, self._events), (REQUEST, self._requests), (RESPONSE, self._responses))
        return [queue for kind, queue in queues if types & kind]

    def publish(self, topic: str, obj: Any = None, payload: Optional[bytes] = None, flags: int = 0) -> None:
        """Publish an event; rank 0 gives it a sequence number and distributes it."""
        self.send(make_event(topic, obj, flags, payload))

    # -- requests of nearly every command

    def attr_get(self, name: str) -> str:
        """A broker attribute. Raises OSError ENOENT for one that is not set."""
        value = str(self.rpc("attr.get", {"name": name}).get()["value"])
        return through_proxy(value) if name == "parent-uri" else value


def enclosing(path: str) -> str:
    """The URI of an enclosing instance.

    ".." is the instance of which this instance is a job, "../.." is the next one, and "/" is the outermost. Levels
    beyond the outermost have no effect. Raises OSError EINVAL for other paths.
    """
    words = path.split("/")
    if path != "/" and (path[0] == "/" or not {"", ".", ".."}.issuperset(words)):
        raise OSError(errno.EINVAL, f"Unable to connect to Flux: '{path}' does not lead to an enclosing instance")
    uri = os.environ.get("FLUX_URI") or DEFAULT_URI
    hops = -1 if path == "/" else words.count("..")
    while hops:
        with Handle(uri) as handle:
            try:
                uri = handle.attr_get("parent-uri")
            except OSError as exc:
                if exc.errno != errno.ENOENT:
                    raise
                break
        hops -= 1
    return uri
