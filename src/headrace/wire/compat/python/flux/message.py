"""`flux.message.Message`: a message (RFC 3) in the bindings."""

from __future__ import annotations

import json
from typing import Any, Optional, Tuple, Union

from headrace.formats.spec import message as m

_TYPES = {m.REQUEST: "request", m.RESPONSE: "response", m.EVENT: "event", m.CONTROL: "control"}


def to_text(text: Union[str, bytes]) -> str:
    """Convert an argument that may be bytes, as in the C bindings, to text."""
    return text.decode("utf-8") if isinstance(text, bytes) else text


def encoded(payload: Any) -> Optional[bytes]:
    """The payload as bytes: bytes and text unchanged, other objects as JSON, all with a terminating NUL."""
    if payload is None:
        return None
    if not isinstance(payload, (str, bytes)):
        payload = json.dumps(payload, ensure_ascii=False)
    return (payload if isinstance(payload, bytes) else payload.encode("utf-8", "surrogateescape")) + b"\0"


class Message:
    """A received message, or one to be sent; `payload` is its JSON object, None without one."""

    def __init__(self, type: int = m.REQUEST, *, message: Optional[m.Message] = None) -> None:
        self.message = m.Message(type) if message is None else message
        if message is None and type == m.REQUEST:
            self.message.flags = m.FLAG_ROUTE
            self.message.aux1 = m.NODEID_ANY

    @classmethod
    def from_event_encode(cls, topic: Union[str, bytes], payload: Any = None) -> Message:
        """An event; `payload` is an object, or text that is sent unchanged."""
        return cls(message=m.event(to_text(topic), payload=encoded(payload)))

    @property
    def type(self) -> int:
        return int(self.message.type)

    @type.setter
    def type(self, value: int) -> None:
        self.message.type = value

    @property
    def type_str(self) -> str:
        return _TYPES[self.type]

    @property
    def topic(self) -> str:
        return str(self.message.topic)

    @topic.setter
    def topic(self, value: Union[str, bytes]) -> None:
        self.message.topic = to_text(value)

    @property
    def payload(self) -> Any:
        return self.message.obj

    @payload.setter
    def payload(self, value: Any) -> None:
        self.payload_str = json.dumps(value)

    @property
    def payload_str(self) -> Optional[str]:
        data = self.message.payload
        return None if data is None else bytes(data).rstrip(b"\0").decode("utf-8", "replace")

    @payload_str.setter
    def payload_str(self, value: Union[str, bytes]) -> None:
        old = self.message
        self.message = m.Message(
            old.type,
            old.topic,
            None,
            old.flags,
            old.userid,
            old.rolemask,
            old.aux1,
            old.aux2,
            old.routes,
            encoded(value),
        )

    @property
    def userid(self) -> int:
        return int(self.message.userid)

    @userid.setter
    def userid(self, value: int) -> None:
        self.message.userid = value

    @property
    def rolemask(self) -> int:
        return int(self.message.rolemask)

    @rolemask.setter
    def rolemask(self, value: int) -> None:
        self.message.rolemask = value

    @property
    def pimpl(self) -> Credentials:
        """The setters of the C bindings' inner object."""
        return Credentials(self)

    def decode(self) -> Tuple[int, str, Optional[str]]:
        """(type, topic, payload as text)."""
        return self.type, self.topic, self.payload_str

    def __str__(self) -> str:
        return f"{self.type_str} {self.topic} {self.payload_str or ''}".rstrip()


class Credentials:
    """Sets the sender of a message (RFC 12).

    A broker accepts another user or role only from the instance's owner.
    """

    def __init__(self, message: Message) -> None:
        self._message = message

    def set_userid(self, userid: int) -> None:
        self._message.userid = userid

    def set_rolemask(self, rolemask: int) -> None:
        self._message.rolemask = rolemask
