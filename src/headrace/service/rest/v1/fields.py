"""Fields of a `/v1` request. Clients send the same fields in the query, a form, or a JSON object.

A table of fields defines both what a route reads and its description in OpenAPI.
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
    """A request field. `read` converts its value or raises ValueError; `type` is for OpenAPI.

    `others` are the names that older clients use.
    """

    name: str
    read: Callable[[Any], Any]
    type: str
    description: str
    others: tuple[str, ...] = ()


def text(value: Any) -> str:
    """A text as `checked_text` accepts it, or a number as text."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("must be text")
    return checked_text(str(value))


def integer(value: Any) -> int:
    """A whole number, also as text, or as a floating point number, which some clients send."""
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
    """Return a reader that gives None for values that `read` rejects, so the field counts as not given."""

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
    """Read the given fields. Empty texts and unknown names are ignored. Raises BadFields."""
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
    """True if the body is read as JSON, like any body but a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind not in ("application/x-www-form-urlencoded", "multipart/form-data")


async def of_body(request: Request) -> dict[str, Any]:
    """The fields of a form or of a JSON object, none without a body. Raises BadBody."""
    if not is_json(request):
        try:
            async with request.form(max_files=0) as form:
                return dict(form)
        except FormParserError as exc:
            # Newer versions of Starlette answer such a request themselves.
            raise BadBody(f"the body is not a valid form: {exc}") from None
    if (await request.body()).strip() == b"null":
        return {}
    return await json_object(request, "is neither a form nor")


async def read(request: Request, fields: Iterable[Field]) -> dict[str, Any]:
    """The fields of query and body; the query takes precedence. Raises BadBody, BadFields."""
    return pick({**await of_body(request), **of_query(request)}, fields)


def openapi(fields: Iterable[Field]) -> dict[str, Any]:
    """The OpenAPI parameters of a route that reads these fields."""
    return {
        "parameters": [
            {
                **{"name": field.name, "in": "query", "required": False, "description": field.description},
                "schema": {"type": field.type},
            }
            for field in fields
        ]
    }
