"""The operator as a program: log lines and HTTP pages."""

from __future__ import annotations

import asyncio
import json
import logging

import aiohttp
import pytest
from running_operator import free_port

from headrace.kube.serve import JsonLines, TextLines, _comes_first, _http


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "headrace.kube", "levelno": 30, "levelname": "WARNING", "created": 1.5})
    made.msg, made.args, made.msecs = "%d of them", (2,), 500.0
    vars(made).update(extra)
    return made


def test_a_json_line_has_what_the_call_gave() -> None:
    line = json.loads(JsonLines().format(record(namespace="ns", minicluster="hello")))
    assert line == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "logger": "headrace.kube",
        "message": "2 of them",
        "namespace": "ns",
        "minicluster": "hello",
    }


def test_an_exception_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as exc:
        text = JsonLines().format(record(exc_info=(ValueError, exc, exc.__traceback__)))
    assert "\n" not in text and "two\\nlines" in text


def test_a_line_for_people_ends_with_what_the_call_gave() -> None:
    assert TextLines().format(record(namespace="ns")).endswith(" WARNING 2 of them namespace=ns")


def test_pages_answer_with_their_status() -> None:
    async def run() -> tuple[tuple[int, str], int]:
        port = free_port()
        pages = {"/readyz": lambda: (503, "not yet\n", "text/plain")}
        runner = await _http(f"127.0.0.1:{port}", pages)
        assert runner is not None and await _http("", pages) is None
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                ready, other = await session.get("/readyz"), await session.get("/other")
                return (ready.status, await ready.text()), other.status
        finally:
            await runner.cleanup()

    assert asyncio.run(run()) == ((503, "not yet\n"), 404)


def test_nothing_goes_on_when_a_part_has_failed() -> None:
    async def forever(ended: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def fails() -> None:
        raise OSError("port taken")

    async def run() -> list[str]:
        ended: list[str] = []
        with pytest.raises(OSError, match="port taken"):
            await _comes_first(forever(ended), [asyncio.create_task(fails())])
        stopping = asyncio.create_task(asyncio.sleep(0))
        assert not await _comes_first(forever(ended), [stopping])
        assert await _comes_first(asyncio.sleep(0), [asyncio.create_task(forever(ended))])
        return ended

    assert asyncio.run(run())[:2] == ["ended", "ended"]
