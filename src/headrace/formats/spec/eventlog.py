"""Eventlogs (RFC 18): each line is a JSON object with a time, a name and a context.

Jobs, resources and the output of tasks have such logs. A job waits while its events are encoded, so the outer object is
written directly, and only the name and the context are passed through the JSON encoder.
"""

from __future__ import annotations

from operator import itemgetter

from headrace.formats.spec import plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

_NO_TIME = "the timestamp must be a number of seconds greater than zero"


class EventlogError(ValueError):
    """A line or an event that breaks RFC 18; the message names the line and the rule."""


class Event(tuple):  # type: ignore[type-arg]
    """One entry of an eventlog: the tuple (timestamp, name, context).

    It is not a NamedTuple, because importing typing would slow down every command.

    timestamp: seconds since 1970-01-01 UTC, greater than zero
    name: without whitespace, not empty
    context: a dict as the event's definition requires (RFC 21, 44, 50, 24 …); None if it has none
    """

    __slots__ = ()

    def __new__(cls, timestamp: float, name: str, context: Optional[Dict[str, Any]] = None) -> Event:
        return tuple.__new__(cls, (timestamp, name, context))

    timestamp: float = property(itemgetter(0))  # type: ignore[assignment]
    name: str = property(itemgetter(1))  # type: ignore[assignment]
    context: Optional[Dict[str, Any]] = property(itemgetter(2))  # type: ignore[assignment]

    def __getnewargs__(self) -> Tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"Event(timestamp={self.timestamp!r}, name={self.name!r}, context={self.context!r})"


def encode(event: Event) -> str:
    """Return the event as a line of JSON with a newline. Raises EventlogError if the event breaks RFC 18."""
    timestamp, name, context = event
    _check(timestamp, name)
    try:
        if context is None:
            return f'{{"timestamp":{timestamp!r},"name":{plain_json.dumps(name)}}}\n'
        text = plain_json.dumps(context, constants=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise EventlogError(f"event '{name}': the context cannot be written as JSON: {exc}") from None
    if text[0] != "{":
        raise EventlogError(f"event '{name}': the context must be an object, not {text[:40]}")
    return f'{{"timestamp":{timestamp!r},"name":{plain_json.dumps(name)},"context":{text}}}\n'


def decode_line(line: str) -> Event:
    """Return the event of one line, with or without its newline. Raises EventlogError."""
    try:
        entry = plain_json.loads(line, constants=False)
    except (ValueError, RecursionError) as exc:
        raise EventlogError(f"event '{_short(line)}' is not JSON: {exc}") from None
    if type(entry) is not dict:
        raise EventlogError(f"event '{_short(line)}': must be an object with timestamp and name")
    timestamp, name, context = entry.get("timestamp"), entry.get("name"), entry.get("context")
    _check(timestamp, name)
    if "context" in entry and type(context) is not dict:
        raise EventlogError(f"event '{name}': the context must be an object")
    return Event(float(timestamp), name, context)  # type: ignore[arg-type]


def decode(text: str) -> List[Event]:
    """Return the events of a log in order; the last newline may be missing.

    Raises EventlogError with the line.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    events: List[Event] = []
    for line in lines:
        try:
            events.append(decode_line(line))
        except EventlogError as exc:
            raise EventlogError(f"line {len(events) + 1}: {exc}") from None
    return events


def _check(timestamp: object, name: object) -> None:
    if type(name) is not str or not name or len(name.split(None, 1)) != 1 or name[0].isspace() or name[-1].isspace():
        raise EventlogError(f"event {_short(repr(name))}: the name must be a string without whitespace")
    if type(timestamp) is float:
        valid = 0.0 < timestamp < float("inf")
    else:
        valid = type(timestamp) is int and 0 < timestamp < 1 << 53
    if not valid:
        raise EventlogError(f"event '{name}': {_NO_TIME}, not {_short(repr(timestamp))}")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
