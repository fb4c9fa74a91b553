"""Requests that never become whole; the server is uvicorn's, with an application that answers each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from headrace.api import http_connection
from headrace.api.http_connection import TimelyConnection

WHOLE = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    # An answer may take longer than a request.
    await asyncio.sleep(2 * http_connection.REQUEST_TIME)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def answers(*texts: bytes) -> list[bytes]:
    """What the server answers to each of these, until it closes the connection or the answer is whole."""
    config = uvicorn.Config(application, http=TimelyConnection, ws="none", lifespan="off", port=0, log_level="error")
    config.load()
    config.loaded_app = application
    server = uvicorn.Server(config)
    listening = await asyncio.get_running_loop().create_server(
        lambda: TimelyConnection(config, server.server_state, {}), "127.0.0.1", 0
    )
    port = listening.sockets[0].getsockname()[1]

    async def answer(text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""
        finally:
            writer.close()

    async with listening:
        return list(await asyncio.gather(*map(answer, texts)))


def test_a_connection_without_a_whole_request_is_closed_and_a_slow_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_TIME", 0.2)
    body = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n"
    none, header, cut, posted, whole = asyncio.run(answers(b"", WHOLE[:-2], body + b"123", body + b"123456789", WHOLE))
    assert none == header == cut == b""
    assert posted.startswith(b"HTTP/1.1 204") and whole.startswith(b"HTTP/1.1 204")
