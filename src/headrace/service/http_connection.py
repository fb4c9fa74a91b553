"""An HTTP connection that limits the time and size of requests while they arrive.

uvicorn itself waits without limit for the rest of a request, so slow connections could use up all descriptors, and it
buffers headers of any size.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

# Seconds from the start of a connection, or of a request, until the whole request has arrived.
REQUEST_TIME = 60.0
# The maximum size of a request's URL, and of URL and headers together, in bytes. The maximum number of headers.
HEAD_LIMIT = 1 << 16
MOST_HEADERS = 100
# Seconds between the refusal of a request and the end of its connection. Data that arrives meanwhile is dropped. If the
# connection were closed at once, the kernel would reset it, and many clients would not see the response.
_DROPPING = 1.0

_TOO_LONG = (414, f"the address of the request is longer than {HEAD_LIMIT} bytes")
_TOO_LARGE = (431, f"the headers of the request are more than {MOST_HEADERS}, or longer than {HEAD_LIMIT} bytes")


class _Refused(Exception):
    """Raised in a callback of the parser, to stop parsing."""


class BoundedConnection(HttpToolsProtocol):
    """A connection that closes if a request is late or its head too large. Responses have no time limit."""

    _timer: asyncio.TimerHandle | None = None
    # Status and text of the refusal, after which all further data is dropped.
    _refusal: tuple[int, str] | None = None
    # Bytes that the parser buffers: received since the last complete head, piece of a body, or request.
    _pending = 0
    # True from the first byte of a request until all of it has arrived.
    _is_arriving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._pending += len(data)
        super().data_received(data)
        if self._refusal is None and (self._pending > HEAD_LIMIT or len(self.headers or ()) > MOST_HEADERS):
            self._refusal = _TOO_LARGE
            self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_arriving = True
        # The rest of a pipelined request is read after the response to the request before it (`on_response_complete`).
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > HEAD_LIMIT:
            self._refusal = _TOO_LONG
            raise _Refused

    def on_headers_complete(self) -> None:
        self._pending = 0
        # The limits are checked once, because a check at each header would slow down every request. Until here
        # `data_received` limits the size of the headers.
        length = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if length > HEAD_LIMIT or len(self.headers) > MOST_HEADERS:
            self._refusal = _TOO_LARGE
            raise _Refused
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        self._is_arriving = False
        self._cancel_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_arriving and not self.transport.is_closing():
            self._start_deadline()

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            super().send_400_response(msg)
        else:
            self._refuse()

    def _refuse(self) -> None:
        assert self._refusal is not None
        if self.cycle is not None and not self.cycle.response_complete:
            # A response is in progress: to an earlier request, or to this one if its trailers are too large.
            self.transport.close()
            return
        self.url, self.headers = b"", []
        status, text = self._refusal
        body = text.encode() + b"\n"
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self._cancel_deadline()
        self._timer = self.loop.call_later(_DROPPING, self.transport.close)

    def _start_deadline(self) -> None:
        self._cancel_deadline()
        self._timer = self.loop.call_later(REQUEST_TIME, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
