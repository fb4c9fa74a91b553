"""Exceptions of jobs (RFC 21)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.formats.spec.job_exception import FATAL, SEVERITIES, is_fatal


def test_severities_are_those_of_the_rfc() -> None:
    assert (FATAL, min(SEVERITIES), max(SEVERITIES)) == (0, 0, 7)


@pytest.mark.parametrize(
    ("event", "context", "fatal"),
    [
        ("exception", {"type": "cancel", "severity": 0}, True),
        ("exception", {"type": "note", "severity": 1}, False),
        ("exception", {"type": "note"}, False),
        ("clean", None, False),
        ("memo", {"severity": 0}, False),
    ],
)
def test_only_an_exception_of_severity_0_is_fatal(event: str, context: Any, fatal: bool) -> None:
    assert is_fatal(event, context) is fatal
