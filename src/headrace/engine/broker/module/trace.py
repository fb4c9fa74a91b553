"""`module.trace`: a stream with a summary of each message that modules receive and send.

For debugging. Without a trace, the cost is one attribute read per message. Messages of the trace itself are omitted,
since tracing the broker would otherwise never end.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message, MessageError

if TYPE_CHECKING:
    from headrace.engine.broker.module.context import ModuleContext
    from headrace.engine.broker.module.process import ModuleProcess

_METHOD = "trace"
_TOPICS = ("module.trace", "module.trace-cancel")
_ALL_TYPES = m.REQUEST | m.RESPONSE | m.EVENT | m.CONTROL


class ModuleTrace:
    """The active traces. `loaded` has the modules of this broker, by name."""

    def __init__(self, ctx: ModuleContext, loaded: Mapping[str, ModuleContext | ModuleProcess]) -> None:
        self._ctx = ctx
        self._loaded = loaded
        self._streams = ctx.streams(_METHOD)
        self._streams.on_remove = lambda _msg: self.attach()

    def start(self, msg: Message) -> None:
        """Handle `{names, typemask, topic_glob, full}`, all but `names` optional. No names means all modules.

        A module may be named before it is loaded. Raises RpcError(EPROTO).
        """
        self._streams.add(msg)
        self.attach()

    def attach(self) -> None:
        """Trace exactly the modules that are named by a trace. Called when traces or modules change."""
        asked = [msg.obj["names"] for msg in self._streams]
        for name, module in self._loaded.items():
            module.tracer = self._note if any(not names or name in names for names in asked) else None

    def _note(self, name: str, way: str, msg: Message) -> None:
        """Report a message that module `name` received ("rx") or sent ("tx")."""
        if msg.topic in _TOPICS:
            return
        now = time.time()
        for stream in self._streams:
            asked = stream.obj
            if (
                (not asked["names"] or name in asked["names"])
                and msg.type & (asked.get("typemask") or _ALL_TYPES)
                and fnmatch.fnmatchcase(msg.topic, asked.get("topic_glob") or "*")
            ):
                self._ctx.respond(stream, _summary(now, name, way, msg, asked.get("full") is True))


def _summary(now: float, name: str, way: str, msg: Message, full: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "timestamp": now,
        "prefix": way,
        "name": name,
        "type": msg.type,
        "topic": msg.topic,
        "payload_size": len(msg.payload or b""),
    }
    if msg.type == m.RESPONSE:
        body["errnum"] = msg.errnum
    if full and not (msg.type == m.RESPONSE and msg.errnum):
        try:
            body["payload"] = msg.obj
        except MessageError:
            body["payload"] = None
    return body
