"""Requests that never become whole, or have no end; the server is uvicorn's, with an application that answers each."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from headrace.service import http_connection
from headrace.service.http_connection import HEAD_LIMIT, MOST_HEADERS, BoundedConnection

MANY = 1 << 25
WHOLE = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    # An answer may take longer than a request.
    await asyncio.sleep(2 * http_connection.REQUEST_TIME)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A server on the returned port."""
    config = uvicorn.Config(application, http=BoundedConnection, ws="none", lifespan="off", port=0, log_level="error")
    config.load()
    config.loaded_app = application
    server = uvicorn.Server(config)
    listening = await asyncio.get_running_loop().create_server(
        lambda: BoundedConnection(config, server.server_state, {}), "127.0.0.1", 0
    )
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def answers(*texts: bytes, endless: bytes = b"") -> list[bytes]:
    """What the server answers to each of these, until it closes the connection or the answer is whole. Where it closes
    none, each goes on with MANY bytes more of `endless`.
    """

    async def answer(port: int, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        with contextlib.suppress(ConnectionError):
            for _ in range(MANY // len(endless) if endless else 0):
                writer.write(endless)
                await writer.drain()
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""
        finally:
            writer.close()

    async with serving() as port:
        return list(await asyncio.gather(*(answer(port, text) for text in texts)))


def test_a_connection_without_a_whole_request_is_closed_and_a_slow_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_TIME", 0.2)
    body = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n"
    none, header, cut, posted, whole = asyncio.run(answers(b"", WHOLE[:-2], body + b"123", body + b"123456789", WHOLE))
    assert none == header == cut == b""
    assert posted.startswith(b"HTTP/1.1 204") and whole.startswith(b"HTTP/1.1 204")


def test_a_pipelined_request_has_a_time_limit_from_the_response_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_TIME", 0.2)

    async def trickle() -> bool:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(WHOLE + b"GET / HTTP/1.1\r\nX: ")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            with contextlib.suppress(ConnectionError):
                for _ in range(400):
                    writer.write(b"a")
                    with contextlib.suppress(asyncio.TimeoutError):
                        if not await asyncio.wait_for(reader.read(1), 0.02):
                            return True
                return False
            return True

    assert asyncio.run(trickle())


LINES = b"GET / HTTP/1.1\r\nHost: here\r\n"
POST = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    ("begin", "endless", "status"),
    [
        (b"GET /", b"x" * 65536, b"414"),
        (b"GET /?", b"x=1&" * 16384, b"414"),
        (LINES, b"X123: a\r\n" * 7281, b"431"),
        (LINES + b"X: ", b"x" * 65536, b"431"),
        (LINES, b"x" * 65536, b"431"),
        # The answer has begun when these come, so the connection is closed.
        (POST + b"0\r\n", b"X123: a\r\n" * 7281, b""),
        (POST + b"0\r\nX: ", b"x" * 65536, b""),
        (POST + b"1;", b"x" * 65536, b""),
    ],
)
def test_what_has_no_end_is_refused_and_kept_nowhere(begin: bytes, endless: bytes, status: bytes) -> None:
    tracemalloc.start()
    try:
        (answer,) = asyncio.run(answers(begin, endless=endless))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer[9:12] == status
    # asyncio reads 256 KiB at a time, and the client has some in its buffer.
    assert peak < MANY / 8


def test_a_request_may_be_as_large_as_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_TIME", 0.2)
    lines = [b"X%d: a" % number for number in range(MOST_HEADERS)]
    most = b"\r\n".join([b"GET / HTTP/1.1", *lines])
    url = b"/" + b"u" * (HEAD_LIMIT - 2)
    body = b"POST / HTTP/1.1\r\nContent-Length: 999999\r\n\r\n" + b"x" * 999999 + WHOLE
    texts = {
        most + b"\r\n\r\n": b"204",
        most + b"\r\nX: a\r\n\r\n": b"431",
        b"GET " + url + b" HTTP/1.1\r\n\r\n": b"204",
        b"GET " + url + b" HTTP/1.1\r\nXX: a\r\n\r\n": b"431",
        b"GET " + url + b"uu HTTP/1.1\r\n\r\n": b"414",
        body: b"204",
    }
    found = asyncio.run(answers(*texts))
    assert [one[9:12] for one in found] == list(texts.values())
