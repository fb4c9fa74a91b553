"""Log lines: JSON for collectors, text for users."""

from __future__ import annotations

import json
import logging

from headrace.k8s.runtime.program import JsonLines, TextLines


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "headrace.minicluster.operator", "levelno": 30, "levelname": "WARNING", "created": 1.5}
    )
    made.msg, made.args, made.msecs = "%d of them", (2,), 500.0
    vars(made).update(extra)
    return made


def test_a_json_line_has_what_the_call_gave() -> None:
    line = json.loads(JsonLines().format(record(namespace="ns", minicluster="hello")))
    assert line == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "logger": "headrace.minicluster.operator",
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
