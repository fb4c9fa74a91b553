"""The journal's entries: their bytes are those of every earlier version, and are read back as what was written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.engine.jobs.pack import Submission
from headrace.engine.modules.job_manager.records import (
    Entry,
    EventsPosted,
    JobReaped,
    JobsPurged,
    JobSubmitted,
    LogAppended,
    LogsSaved,
    QueuesChanged,
    ResourcesSet,
    TextAdded,
)

R = {"version": 1, "execution": {"R_lite": []}}
CODE = (0, 5, 7, b"own")

# An entry, and what an instance has on its disk for it since the first version.
WRITTEN: list[tuple[Entry, list[Any]]] = [
    (TextAdded(3, b"{}"), [0, 3, b"{}"]),
    (JobSubmitted(9, Submission(b"", CODE, b"")), [1, 9, [b"", CODE, b"", None, None]]),
    (
        JobSubmitted(9, Submission(b"h", CODE, b"t", {"attributes.system.queue": "a"}, (-1, 0, 0, b"x"))),
        [1, 9, [b"h", CODE, b"t", {"attributes.system.queue": "a"}, [-1, 0, 0, b"x"]]],
    ),
    (
        EventsPosted(9, (1, [(2.5, "validate", None), (3.0, "priority", {"priority": 16})])),
        [2, 9, [1, [[2.5, "validate", None], [3.0, "priority", {"priority": 16}]]]],
    ),
    (ResourcesSet(9, R), [3, 9, R]),
    (
        LogsSaved(9, {"guest.output": b"text", "guest.input": 70_000, "guest.exec.eventlog": (70_000, b"rest")}),
        [4, 9, {"guest.output": b"text", "guest.input": 70_000, "guest.exec.eventlog": [70_000, b"rest"]}],
    ),
    (QueuesChanged(0, [["batch", True, None, False, "why"]]), [5, 0, [["batch", True, None, False, "why"]]]),
    (JobsPurged(0, [1, 2]), [6, 0, [1, 2]]),
    (JobReaped(9, "job did not run"), [7, 9, "job did not run"]),
    (LogAppended(9, ("guest.output", 70_000, b"{}\n")), [8, 9, ["guest.output", 70_000, b"{}\n"]]),
]


@pytest.mark.parametrize(("entry", "plain"), WRITTEN)
def test_an_entry_is_on_disk_as_in_every_version(entry: Entry, plain: list[Any]) -> None:
    written = msgspec.msgpack.encode([entry])
    assert written == msgspec.msgpack.encode([plain])
    assert msgspec.msgpack.decode(written, type=list[Entry]) == [entry]
