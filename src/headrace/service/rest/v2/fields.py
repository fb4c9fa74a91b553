"""Fields of a `/v2` request. A table of fields defines what a route reads and its OpenAPI description.

Each field has one place: the query, or a body that is a JSON object. An unknown field is rejected, because it is most
often a misspelt name.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request

from headrace.service.fields import Field, checked_text, json_object, of_query
from headrace.wire.query import when

_SWITCHES = {"true": True, "1": True, "false": False, "0": False}
# The latest time that programs' calendars support: the end of the year 9999, in seconds since the epoch.
_LATEST = 253402300799.0
WRONG_CURSOR = "must be the value of next in an earlier response"


def text(value: Any) -> str:
    return checked_text(value)


def switch(value: str) -> bool:
    """A boolean in a query."""
    if value.lower() not in _SWITCHES:
        raise ValueError(f"must be true or false, not '{value}'")
    return _SWITCHES[value.lower()]


def words(value: str) -> list[str]:
    """Words separated by commas. None may be empty."""
    found = [word.strip() for word in checked_text(value).split(",")]
    if not all(found):
        raise ValueError("must be words separated by commas")
    return found


def moment(value: str) -> float:
    """Parse a point in time, and return it in seconds since the epoch.

    The text is such a number, a time of RFC 3339, or a time as for `flux jobs --since`.
    """
    seconds = _rfc3339(value)
    try:
        seconds = when.parse(value, time.time(), future=False) if seconds is None else seconds
    except (OverflowError, OSError, ValueError):
        seconds = math.nan
    if not 0 <= seconds <= _LATEST:
        raise ValueError(f"must be a point in time such as 2026-11-26T08:00:00Z, 1795680000 or -2h, not '{value}'")
    return seconds


def _rfc3339(value: str) -> float | None:
    """Parse a time of RFC 3339; None for any other text, and for a time without a zone."""
    try:
        found = datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
    except ValueError:
        return None
    return None if found.tzinfo is None else (found - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()


async def of_body(request: Request, query: Iterable[Field] = ()) -> dict[str, Any]:
    """The request body as a JSON object, empty without a body. Raises BadBody.

    Raises BadFields if the request's query has fields that are not in `query`.
    """
    of_query(request, query)
    return await json_object(request)


def parameters(fields: Iterable[Field]) -> list[dict[str, Any]]:
    """The OpenAPI parameters of a route that reads these fields from the query."""
    return [
        {"name": field.name, "in": "query", "required": False, "description": field.description, "schema": field.schema}
        for field in fields
    ]


def form(fields: Iterable[Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of a JSON object that has these fields."""
    properties = {field.name: {**field.schema, "description": field.description} for field in fields}
    found = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**found, "required": [*required]} if required else found


def body_of(fields: Iterable[Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The OpenAPI request body of a route that reads these fields from the body."""
    return {"content": {"application/json": {"schema": form(fields, required)}}, "required": bool(required)}


def cursor_text(place: Sequence[Any]) -> str:
    """Encode the place where a page ended as an opaque text, for `next` in a response."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()


def cursor(value: str) -> list[Any]:
    """Decode the place where a page ended from the text of `cursor_text`. Raises ValueError."""
    try:
        place = json.loads(base64.urlsafe_b64decode(value.encode("ascii")))
    except (ValueError, RecursionError, binascii.Error):
        place = None
    if not isinstance(place, list):
        raise ValueError(WRONG_CURSOR)
    return place
