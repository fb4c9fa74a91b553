"""Flux messages (RFC 3): the value, its multipart form and its frame on the local socket.

All traffic between brokers, modules in processes and clients consists of these messages, so this file is on every hot
path. A message is decoded with a few slices. Its JSON body is decoded when `obj` is first read, and encoded when
`payload` is first read. The body of a message that is only routed is never decoded.
"""

from __future__ import annotations

import struct

from headrace.formats.spec import plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, List, Optional, Sequence, Union

REQUEST = 0x01
RESPONSE = 0x02
EVENT = 0x04
CONTROL = 0x08
TYPES = {REQUEST: "request", RESPONSE: "response", EVENT: "event", CONTROL: "control"}

FLAG_TOPIC = 0x01
FLAG_PAYLOAD = 0x02
FLAG_NORESPONSE = 0x04
FLAG_ROUTE = 0x08
FLAG_UPSTREAM = 0x10
FLAG_PRIVATE = 0x20
FLAG_STREAMING = 0x40
FLAG_USER1 = 0x80

NODEID_ANY = 0xFFFFFFFF
NODEID_UPSTREAM = 0xFFFFFFFE
USERID_UNKNOWN = 0xFFFFFFFF
MATCHTAG_NONE = 0

ROLE_NONE = 0
ROLE_OWNER = 1
ROLE_USER = 2
ROLE_LOCAL = 4
ROLE_ADMIN = 8

MAGIC = 0x8E
VERSION = 1
HEADER = struct.Struct(">BBBBIIII")
HEADER_SIZE = HEADER.size

# A frame of the local socket begins with the magic number in host byte order and a big-endian length, which does not
# include these 8 bytes.
FRAME_MAGIC = struct.pack("=I", 0xFFEE0012)
_FRAME_LENGTH = struct.Struct(">I")
_SIZES = [bytes((size,)) for size in range(255)]
_MAX_PARTS = 64
MAX_FRAME = 1 << 30


class MessageError(ValueError):
    """A frame or a list of parts that is not an RFC 3 message; the text names the violated rule."""


def _json_dumps(obj: Any) -> bytes:
    return plain_json.dumps(obj).encode("utf-8", "surrogateescape")


def _json_loads(data: bytes) -> Any:
    return plain_json.loads(data.decode("utf-8", "surrogateescape"))


_dumps: Callable[[Any], bytes] = _json_dumps
_loads: Callable[[bytes], Any] = _json_loads


def use_json_codec(dumps: Callable[[Any], bytes], loads: Callable[[bytes], Any]) -> None:
    """Replace the JSON codec of this process.

    Brokers set that of msgspec; clients keep the standard library's.
    """
    global _dumps, _loads
    _dumps, _loads = dumps, loads


class Message:
    """A message. `routes` is the route stack in push order: from the original sender to the last hop.

    Receivers must not change `obj`: all modules of a broker may share it.
    """

    __slots__ = ("_obj", "_payload", "aux1", "aux2", "flags", "rolemask", "routes", "topic", "type", "userid")

    def __init__(
        self,
        type: int,
        topic: str = "",
        obj: Any = None,
        flags: int = 0,
        userid: int = USERID_UNKNOWN,
        rolemask: int = ROLE_NONE,
        aux1: int = 0,
        aux2: int = 0,
        routes: Optional[List[bytes]] = None,
        payload: Optional[bytes] = None,
    ) -> None:
        self.type = type
        self.topic = topic
        self.flags = flags
        self.userid = userid
        self.rolemask = rolemask
        self.aux1 = aux1
        self.aux2 = aux2
        self.routes: List[bytes] = [] if routes is None else routes
        self._obj = obj
        self._payload = payload

    @property
    def obj(self) -> Any:
        """The JSON body as an object, or None without a body.

        Raises MessageError if the body is not a JSON object.
        """
        if self._obj is None and self._payload is not None:
            data = self._payload
            if data[-1:] == b"\0":
                data = data[:-1]
            try:
                decoded = _loads(data)
            except (ValueError, RecursionError) as exc:
                raise MessageError(f"{self.topic}: payload is not JSON: {exc}") from None
            if not isinstance(decoded, dict):
                raise MessageError(f"{self.topic}: payload is a JSON {type(decoded).__name__}, it must be an object")
            self._obj = decoded
        return self._obj

    @property
    def payload(self) -> Optional[bytes]:
        """The body as bytes (a JSON body ends with NUL, as RFC 3 says), or None without a body."""
        if self._payload is None and self._obj is not None:
            self._payload = _dumps(self._obj) + b"\0"
        return self._payload

    @property
    def encoded_size(self) -> int:
        """The size of the encoded body in bytes; 0 without a body, or if it has not been encoded yet."""
        return 0 if self._payload is None else len(self._payload)

    def forget_payload(self) -> None:
        """Drop the encoded body if there is an object; it is encoded again on demand."""
        if self._obj is not None:
            self._payload = None

    def forget_object(self) -> None:
        """Drop the decoded body if there is an encoded one; it is decoded again on demand."""
        if self._payload is not None:
            self._obj = None

    def forget_body(self) -> None:
        """Drop the body of a message that was sent, if only the route of its response is still needed."""
        self._obj = self._payload = None

    def keep_way_back(self, other: Message) -> None:
        """Drop the body, and share equal fields with `other`, to save memory.

        A waiting request needs only the route of its response, and thousands of requests from one sender have nearly
        equal fields. The `routes` of both messages must not be changed after this call.
        """
        self.forget_body()
        if self.topic == other.topic:
            self.topic = other.topic
        if self.routes == other.routes:
            self.routes = other.routes
        if self.aux1 == other.aux1:
            self.aux1 = other.aux1
        if self.userid == other.userid:
            self.userid = other.userid

    @property
    def has_payload(self) -> bool:
        return self._payload is not None or self._obj is not None

    @property
    def text(self) -> str:
        """The body as text without its NUL; "" without a body. In error responses it is the error message."""
        data = self.payload
        return "" if data is None else data.rstrip(b"\0").decode("utf-8", "replace")

    @property
    def matchtag(self) -> int:
        return self.aux2

    @property
    def nodeid(self) -> int:
        return self.aux1

    @property
    def errnum(self) -> int:
        return self.aux1

    @property
    def sequence(self) -> int:
        return self.aux1

    @property
    def streaming(self) -> bool:
        return bool(self.flags & FLAG_STREAMING)

    @property
    def noresponse(self) -> bool:
        return bool(self.flags & FLAG_NORESPONSE)

    @property
    def sender(self) -> str:
        """The uuid of the original requester; "" for a message that has not been routed."""
        return self.routes[0].decode("ascii", "replace") if self.routes else ""

    def __repr__(self) -> str:
        return (
            f"Message({TYPES.get(self.type, self.type)} {self.topic!r} flags={self.flags:#x} "
            f"aux={self.aux1},{self.aux2} routes={len(self.routes)})"
        )


def request(
    topic: str,
    obj: Any = None,
    nodeid: int = NODEID_ANY,
    matchtag: int = MATCHTAG_NONE,
    flags: int = 0,
    userid: int = USERID_UNKNOWN,
    rolemask: int = ROLE_NONE,
    payload: Optional[bytes] = None,
) -> Message:
    """Make a request; without a matchtag it is marked `noresponse`."""
    if matchtag == MATCHTAG_NONE:
        flags |= FLAG_NORESPONSE
    return Message(REQUEST, topic, obj, flags | FLAG_ROUTE, userid, rolemask, nodeid, matchtag, None, payload)


def response(to: Message, obj: Any = None, errnum: int = 0, payload: Optional[bytes] = None) -> Message:
    """Make the response to request `to`, with its topic, matchtag and routes (RFC 6)."""
    return Message(
        RESPONSE,
        to.topic,
        obj,
        (to.flags & FLAG_STREAMING) | FLAG_ROUTE,
        to.userid,
        to.rolemask,
        errnum,
        to.aux2,
        to.routes[:],
        payload,
    )


def error_response(to: Message, errnum: int, text: str = "") -> Message:
    """Make an error response; `text`, if given, is the message for users."""
    return response(to, None, errnum, text.encode("utf-8", "replace") + b"\0" if text else None)


def event(topic: str, obj: Any = None, flags: int = 0, payload: Optional[bytes] = None) -> Message:
    """Make an event without a sequence number; rank 0 assigns the number."""
    return Message(EVENT, topic, obj, flags, payload=payload)


def encode_parts(msg: Message) -> List[bytes]:
    """The multipart form in wire order: routes (last hop first), delimiter, topic, payload, header."""
    parts: List[bytes] = []
    flags = msg.flags & ~(FLAG_TOPIC | FLAG_PAYLOAD)
    if flags & FLAG_ROUTE:
        if msg.routes:
            parts.extend(reversed(msg.routes))
        parts.append(b"")
    if msg.topic:
        flags |= FLAG_TOPIC
        parts.append(msg.topic.encode("utf-8", "surrogateescape"))
    payload = msg.payload
    if payload is not None:
        flags |= FLAG_PAYLOAD
        parts.append(payload)
    parts.append(HEADER.pack(MAGIC, VERSION, msg.type, flags, msg.userid, msg.rolemask, msg.aux1, msg.aux2))
    return parts


def decode_parts(parts: Sequence[bytes]) -> Message:
    """The message of `parts`. Raises MessageError for parts that RFC 3 does not allow."""
    if not parts or len(parts) > _MAX_PARTS:
        raise MessageError(f"a message has 1 to {_MAX_PARTS} parts, this has {len(parts)}")
    header = parts[-1]
    if len(header) != HEADER_SIZE:
        raise MessageError(f"the header part has {len(header)} bytes, it must have {HEADER_SIZE}")
    magic, version, kind, flags, userid, rolemask, aux1, aux2 = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        raise MessageError(f"header starts with {magic:#04x} {version}, it must start with {MAGIC:#04x} {VERSION}")
    if kind not in TYPES:
        raise MessageError(f"unknown message type {kind:#x}")
    end = len(parts) - 1
    payload: Optional[bytes] = None
    if flags & FLAG_PAYLOAD:
        end -= 1
        if end < 0:
            raise MessageError("the payload flag is set but there is no payload part")
        payload = parts[end]
    topic = ""
    if flags & FLAG_TOPIC:
        end -= 1
        if end < 0:
            raise MessageError("the topic flag is set but there is no topic part")
        try:
            topic = parts[end].decode("utf-8")
        except UnicodeDecodeError:
            raise MessageError("the topic is not UTF-8") from None
        if "\0" in topic:
            raise MessageError("the topic holds a NUL")
    if flags & FLAG_ROUTE:
        end -= 1
        if end < 0 or parts[end]:
            raise MessageError("the route flag is set but there is no route delimiter")
        routes = list(parts[:end])
        routes.reverse()
        if b"" in routes:
            raise MessageError("empty route part")
    else:
        routes = []
        if end:
            raise MessageError(f"{end} part(s) for which no flag is set")
    return Message(kind, topic, None, flags, userid, rolemask, aux1, aux2, routes, payload)


def frame(msg: Message) -> bytes:
    """The message as one frame of the local socket."""
    out: List[bytes] = []
    for part in encode_parts(msg):
        size = len(part)
        out.append(_SIZES[size] if size < 255 else b"\xff" + _FRAME_LENGTH.pack(size))
        out.append(part)
    body = b"".join(out)
    return FRAME_MAGIC + _FRAME_LENGTH.pack(len(body)) + body


def unframe(body: bytes) -> Message:
    """The message of a frame's body (without magic and length)."""
    return decode_parts(_split(body))


def unframe_ends(body: bytes) -> Message:
    """The message, without its payload, of a frame's body whose middle was dropped.

    The beginning must include the routes and the topic, the end the header. Raises MessageError.
    """
    header = list(HEADER.unpack(body[-HEADER_SIZE:]))
    parts = _split(body[:-HEADER_SIZE], cut=True)
    count = parts.index(b"") + 1 if header[3] & FLAG_ROUTE and b"" in parts else 0
    count += bool(header[3] & FLAG_TOPIC)
    header[3] &= ~FLAG_PAYLOAD
    return decode_parts([*parts[:count], HEADER.pack(*header)])


def _split(body: bytes, cut: bool = False) -> List[bytes]:
    """The parts of a frame's body; with `cut`, the complete parts of a body that was cut off."""
    parts: List[bytes] = []
    pos = 0
    end = len(body)
    while pos < end:
        size = body[pos]
        pos += 1
        if size == 255:
            if pos + 4 > end:
                if cut:
                    break
                raise MessageError("a part's size is cut off")
            size = int.from_bytes(body[pos : pos + 4], "big")
            pos += 4
        if pos + size > end:
            if cut:
                break
            raise MessageError(f"a part of {size} bytes runs past the end of its frame")
        parts.append(body[pos : pos + size])
        pos += size
        if len(parts) > _MAX_PARTS:
            raise MessageError(f"more than {_MAX_PARTS} parts")
    return parts


class Deframer:
    """Splits a byte stream into messages: `feed` data, then iterate.

    Raises MessageError for an invalid stream.
    """

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self.limit = limit

    def feed(self, data: Union[bytes, memoryview]) -> None:
        self._buffer += data

    @property
    def pending(self) -> int:
        """The number of bytes of an incomplete frame."""
        return len(self._buffer)

    @property
    def unfinished(self) -> int:
        """The size of the incomplete frame, without its first 8 bytes; 0 until these 8 bytes have arrived."""
        return int.from_bytes(self._buffer[4:8], "big") if len(self._buffer) >= 8 else 0

    def __iter__(self) -> Iterator[Message]:
        buffer = self._buffer
        pos = 0
        end = len(buffer)
        try:
            while end - pos >= 8:
                if buffer[pos : pos + 4] != FRAME_MAGIC:
                    raise MessageError("a frame does not start with the magic number")
                size = int.from_bytes(buffer[pos + 4 : pos + 8], "big")
                if size > self.limit:
                    raise MessageError(f"a frame of {size} bytes is over the limit of {self.limit}")
                if end - pos - 8 < size:
                    break
                body = bytes(buffer[pos + 8 : pos + 8 + size])
                pos += 8 + size
                yield unframe(body)
        finally:
            if pos:
                del buffer[:pos]
