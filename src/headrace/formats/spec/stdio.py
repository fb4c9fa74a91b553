"""Standard I/O of jobs (RFC 24): the contexts of the events in ``guest.output`` and ``guest.input``.

UTF-8 text is stored unchanged, other data as base64 with an ``encoding`` key, so each event of a log has its own
encoding. A long run of one byte is stored once with ``repeat``. Each function makes the context of one event.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Dict, Mapping, NamedTuple, Optional

# For a shorter run, the key would take more space than it saves.
_MIN_REPEAT = 1024

# The limit keeps a small event with a large ``repeat`` from exhausting the reader's memory.
_MAX_DATA = 1 << 28


class StdioError(ValueError):
    """An invalid context of an I/O event; the message names the key."""


class Data(NamedTuple):
    """A data event.

    ``rank`` is an idset string or ``all``; ``data`` is None if the event only ends the stream.
    """

    stream: str
    rank: str
    data: Optional[bytes]
    eof: bool


def header(
    counts: Mapping[str, int],
    encoding: str = "UTF-8",
    options: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Make the context of the header event from the number of open streams by stream name."""
    return {
        "version": 1,
        "encoding": dict.fromkeys(counts, encoding),
        "count": dict(counts),
        "options": dict(options or {}),
    }


def data(stream: str, rank: str, content: Optional[bytes] = None, eof: bool = False) -> Dict[str, Any]:
    """Make the context of a data event from bytes, the end of the stream, or both.

    Raises StdioError for neither.
    """
    context: Dict[str, Any] = {"stream": stream, "rank": rank}
    if content:
        size = len(content)
        repeat = size >= _MIN_REPEAT and content.count(content[:1]) == size
        if repeat:
            content = content[:1]
        try:
            context["data"] = content.decode("utf-8")
        except UnicodeDecodeError:
            context["data"] = base64.b64encode(content).decode("ascii")
            context["encoding"] = "base64"
        if repeat:
            context["repeat"] = size
    elif not eof:
        raise StdioError("a data event has data, eof, or both")
    if eof:
        context["eof"] = True
    return context


def redirect(stream: str, rank: str, path: Optional[str] = None) -> Dict[str, Any]:
    """Make the context of a redirect event."""
    context = {"stream": stream, "rank": rank}
    if path is not None:
        context["path"] = path
    return context


def log(
    level: int,
    message: str,
    rank: Optional[int] = None,
    component: Optional[str] = None,
    file: Optional[str] = None,
    line: Optional[int] = None,
) -> Dict[str, Any]:
    """Make the context of a log event; ``level`` is an RFC 5424 severity, 0 to 7, ``rank`` the shell's."""
    known = {"rank": rank, "component": component, "file": file, "line": line}
    return {"level": level, "message": message, **{key: value for key, value in known.items() if value is not None}}


def decode_data(context: Any) -> Data:
    """Return a data event's content. Raises StdioError."""
    if not isinstance(context, dict):
        raise StdioError("data: must be an object")
    stream, rank, text = context.get("stream"), context.get("rank"), context.get("data")
    # Old writers store the rank as a number.
    if isinstance(rank, int) and not isinstance(rank, bool):
        rank = str(rank)
    if not isinstance(stream, str) or not isinstance(rank, str):
        raise StdioError("data: stream and rank must be strings")
    eof = context.get("eof", False)
    if eof not in (True, False, "true", "false"):
        raise StdioError(f"data.eof: must be true or false, not {eof!r}")
    ended = eof in (True, "true")
    if text is None:
        return Data(stream, rank, None, ended)
    if not isinstance(text, str):
        raise StdioError(f"data.data: must be a string, not {text!r}")
    encoding = context.get("encoding", "utf-8")
    content = _decode(text, encoding)
    repeat = context.get("repeat", 1)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 0 <= repeat * max(len(content), 1) <= _MAX_DATA:
        raise StdioError(f"data.repeat: must be a number of times that gives at most {_MAX_DATA} bytes, not {repeat!r}")
    return Data(stream, rank, content * repeat, ended)


def _decode(text: str, encoding: Any) -> bytes:
    kind = encoding.lower() if isinstance(encoding, str) else encoding
    try:
        if kind in ("utf-8", "utf8"):
            return text.encode("utf-8")
        if kind == "base64":
            return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as exc:
        raise StdioError(f"data.data: is not {kind}: {exc}") from None
    raise StdioError(f"data.encoding: must be UTF-8 or base64, not {encoding!r}")
