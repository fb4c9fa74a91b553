"""The fields of a request, from its query, a form and a JSON object alike, as clients send the same fields each way.

A table of fields is what a route reads, and what OpenAPI says of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from starlette.requests import Request

from headrace.service.fields import BadBody, BadFields, checked_text, json_object

_SWITCHES = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_NUMBER = re.compile(r"[+-]?[0-9]+(\.0*)?", re.ASCII)
_LARGEST = (1 << 63) - 1


class Field(NamedTuple):
    """A field: what reads its value (raises ValueError), and its type in OpenAPI. Older clients know it by `others`."""

    name: str
    read: Callable[[Any], Any]
    type: str
    description: str
    others: tuple[str, ...] = ()


def text(value: Any) -> str:
    """Text as programs and files can have it, or a number as text."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("must be text")
    return checked_text(str(value))


def integer(value: Any) -> int:
    """A whole number, also as text and as the floating point number that some clients make of it."""
    if isinstance(value, str) and len(value) < 20:
        value = int(value.partition(".")[0]) if _NUMBER.fullmatch(value.strip()) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ValueError("must be a whole number")
    return value


def count(value: Any) -> int:
    """A whole number from 0 on."""
    found = integer(value)
    if found < 0:
        raise ValueError("must be a whole number from 0 on")
    return found


def if_valid(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What reads the same, and None for a value that `read` refuses: the field counts as not given."""

    def found(value: Any) -> Any:
        try:
            return read(value)
        except ValueError:
            return None

    return found


def switch(value: Any) -> bool:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    if not isinstance(value, str) or value.lower() not in _SWITCHES:
        raise ValueError("must be true or false")
    return _SWITCHES[value.lower()]


def anything(value: Any) -> Any:
    return value


def pick(given: dict[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """The values of those fields that were given; an empty text stands for none. Raises BadFields."""
    values: dict[str, Any] = {}
    problems = []
    for field in fields:
        for name in (field.name, *field.others):
            if given.get(name) in (None, ""):
                continue
            try:
                value = field.read(given[name])
            except ValueError as exc:
                problems.append((name, str(exc)))
                continue
            if value is not None:
                values.setdefault(field.name, value)
    if problems:
        raise BadFields(problems)
    return values


def of_query(request: Request) -> dict[str, Any]:
    return dict(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))


def is_json(request: Request) -> bool:
    """Whether a body is read as JSON: that of anything but a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind not in ("application/x-www-form-urlencoded", "multipart/form-data")


async def of_body(request: Request) -> dict[str, Any]:
    """The fields of a form or of a JSON object, none without a body. Raises BadBody."""
    if not is_json(request):
        try:
            async with request.form(max_files=0) as form:
                return dict(form)
        except FormParserError as exc:
            # Newer versions of Starlette have an answer of their own.
            raise BadBody(f"the body is not the form that it is said to be: {exc}") from None
    if (await request.body()).strip() == b"null":
        return {}
    return await json_object(request, "is neither a form nor")


async def read(request: Request, fields: Iterable[Field]) -> dict[str, Any]:
    """The fields of query and body; the query's come first. Raises BadBody, BadFields."""
    return pick({**await of_body(request), **of_query(request)}, fields)


def openapi(fields: Iterable[Field]) -> dict[str, Any]:
    """What OpenAPI says of a route that reads these fields."""
    return {
        "parameters": [
            {
                **{"name": field.name, "in": "query", "required": False, "description": field.description},
                "schema": {"type": field.type},
            }
            for field in fields
        ]
    }
