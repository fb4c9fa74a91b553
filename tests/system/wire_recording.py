"""Reads the recorded conversations with a real broker (tests/data/wire): a command's outcome and its messages in order.

Messages stay the JSON objects of the recording: `conn`, `dir` (`c2b` or `b2c`), `type`, `flags`, `topic`, `matchtag`,
`nodeid` or `errnum`, and `payload`, `payload_text` or `payload_b64`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

WIRE = Path(__file__).parent.parent / "data" / "wire"
# The key under which the recording keeps a signed jobspec taken apart.
_SIGNED = "J (decoded: "


class Recording:
    """One conversation: the command's outcome, and each request with the responses it got."""

    def __init__(self, path: Path) -> None:
        head, *messages = [json.loads(line) for line in path.read_text().splitlines()]
        self.name = path.stem
        self.command = head["command"]
        self.rc, self.stdout, self.stderr = head["rc"], head["stdout"], head["stderr"]
        self.messages = _causal(messages)
        self.requests: list[tuple[dict, list[dict]]] = []
        latest: dict[tuple[int, int], list[dict]] = {}
        for entry in self.messages:
            if entry["type"] == "request" and entry["dir"] == "c2b":
                answers: list[dict] = []
                self.requests.append((entry, answers))
                latest[entry["conn"], entry["matchtag"]] = answers
            elif entry["type"] == "response" and entry["dir"] == "b2c":
                latest[entry["conn"], entry["matchtag"]].append(entry)
        self.events = [entry for entry in self.messages if entry["type"] == "event" and entry["dir"] == "b2c"]


def _causal(messages: list[dict]) -> list[dict]:
    """The messages with every response behind its request: the two directions were written by two threads."""
    ordered: list[dict] = []
    early: list[dict] = []
    open_calls: dict[tuple[int, int], str] = {}
    for entry in messages:
        key = (entry["conn"], entry.get("matchtag", 0))
        if entry["type"] == "response" and open_calls.get(key) != entry["topic"]:
            early.append(entry)
            continue
        ordered.append(entry)
        if entry["type"] == "request":
            open_calls[key] = entry["topic"]
            late = [response for response in early if (response["conn"], response["matchtag"]) == key]
            ordered += late
            early = [response for response in early if response not in late]
        elif entry["type"] == "response" and (entry["errnum"] or not entry["flags"] & 0x40):
            del open_calls[key]
    return ordered + early


def signed_jobspec(payload: dict) -> tuple[str, dict] | None:
    """The key and the jobspec of a submission's J, which the recording keeps decoded; None for other payloads."""
    for key, value in payload.items():
        if key.startswith(_SIGNED):
            return key, value["payload"]
    return None


def body(entry: dict) -> bytes | None:
    """The payload bytes of a recorded message whose payload is not JSON, None without one."""
    if "payload_text" in entry:
        return entry["payload_text"].encode()
    if "payload_b64" in entry:
        return base64.b64decode(entry["payload_b64"])
    return None
