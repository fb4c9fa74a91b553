"""`flux.message.Message`: a message as the bindings show it (RFC 3)."""

from __future__ import annotations

import json
from typing import Any, Optional

from headrace.spec import message as m

_TYPES = {m.REQUEST: "request", m.RESPONSE: "response", m.EVENT: "event", m.CONTROL: "control"}


class Message:
    """A message that was received, or is to be sent; `payload` is its JSON object, None without one."""

    def __init__(self, type: int = m.REQUEST, *, message: Optional[m.Message] = None) -> None:
        self.message = m.Message(type) if message is None else message

    @classmethod
    def from_event_encode(cls, topic: str, payload: Any = None) -> Message:
        """An event; `payload` is an object, or JSON text."""
        return cls(message=m.event(topic, json.loads(payload) if isinstance(payload, str) else payload))

    @property
    def type(self) -> int:
        return int(self.message.type)

    @property
    def type_str(self) -> str:
        return _TYPES[self.type]

    @property
    def topic(self) -> str:
        return str(self.message.topic)

    @property
    def payload(self) -> Any:
        return self.message.obj

    @property
    def payload_str(self) -> Optional[str]:
        data = self.message.payload
        return None if data is None else bytes(data).rstrip(b"\0").decode("utf-8", "replace")

    @property
    def userid(self) -> int:
        return int(self.message.userid)

    @property
    def rolemask(self) -> int:
        return int(self.message.rolemask)

    def __str__(self) -> str:
        return f"{self.type_str} {self.topic} {self.payload_str or ''}".rstrip()
