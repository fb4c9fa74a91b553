"""`flux dmesg`: times of the log in the zone of who looks."""

from __future__ import annotations

import time

import pytest

from headrace.cli.messages import dmesg

LINE = "<14>1 2026-11-21T05:37:24.123456Z 3 kvs - - - it is full"


@pytest.mark.parametrize(
    ("zone", "stamp"),
    [
        ("UTC", "2026-11-21T05:37:24.123456Z"),
        ("XXX-5:30", "2026-11-21T11:07:24.123456+05:30"),
        ("XXX+8", "2026-11-20T21:37:24.123456-08:00"),
    ],
)
def test_times_are_local_with_their_offset(zone: str, stamp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert dmesg.format_line(LINE, None) == f"{stamp} kvs.info[3]: it is full"
    finally:
        monkeypatch.undo()
        time.tzset()
