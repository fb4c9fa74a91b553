"""`flux event pub` and `flux event sub`: publish an event, and print events."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.formats.spec.message import FLAG_PRIVATE
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-event: "

_TABLE = {
    "pub": ("Send an event to all subscribers of a topic", None),
    "sub": ("Print events of these topics, or all, as they come", None),
}
_PUB = Command(
    "flux-event pub",
    "[OPTIONS] topic [json]",
    "Send an event to all subscribers of a topic",
    (
        ("r", "raw", "", "Send the text as it is; it need not be JSON"),
        ("s", "synchronous", "", "Print the event's sequence number"),
        ("l", "loopback", "", "Wait until this client has received the event"),
        ("p", "private", "", "Send the event only to the instance owner and the sender"),
    ),
)
_SUB = Command(
    "flux-event sub",
    "[OPTIONS] [topic ...]",
    "Print events of these topics, or all, as they come",
    (
        ("c", "count", "N", "Stop after N events"),
        ("T", "timeout", "FSD", "Fail if no event comes for this time"),
    ),
)


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-event", argv, _TABLE)
    return _pub(rest) if name == "pub" else _sub(rest)


def _pub(argv: List[str]) -> int:
    options = _PUB.parse(argv)
    topic, *words = options.need(1)
    payload = None
    if words:
        text = " ".join(words)
        payload = text.encode() if options.has("raw") else _json(text)
    handle = Handle()
    flags = FLAG_PRIVATE if options.has("private") else 0
    if options.has("loopback"):
        handle.subscribe(topic)
    request = {"topic": topic, "flags": flags}
    if payload is not None:
        from binascii import b2a_base64

        request["payload"] = b2a_base64(payload, newline=False).decode()
    seq = handle.rpc("event.publish", request).get()["seq"]
    if options.has("loopback"):
        while True:
            event = handle.next_event()
            if event is not None and event.sequence == seq:
                break
    if options.has("synchronous"):
        print(seq)
    return 0


def _json(text: str) -> bytes:
    import json

    try:
        value = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"payload is not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise CommandError("payload must be a JSON object")
    return text.encode() + b"\0"


def _sub(argv: List[str]) -> int:
    options = _SUB.parse(argv)
    handle = Handle()
    topics = options.operands or [""]
    for topic in topics:
        handle.subscribe(topic)
    timeout = None
    if options.has("timeout"):
        from headrace.formats.spec import duration

        timeout = duration.parse(options.get("timeout"))
    remaining = options.get_int("count", -1)
    while remaining:
        event = handle.next_event(timeout)
        if event is None:
            raise CommandError(f"no event within {options.get('timeout')}")
        sys.stdout.write(f"{event.topic}\t{event.text}\n")
        sys.stdout.flush()
        remaining -= 1
    for topic in topics:
        handle.unsubscribe(topic)
    return 0
