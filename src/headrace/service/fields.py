"""Request fields, for all interfaces: readers, error messages, and the rules for every text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class BadFields(ValueError):
    """Invalid fields: `problems` has (name, text for users)."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in problems))
        self.problems = problems


class BadBody(ValueError):
    """The body cannot be read. The text is for users."""


class Field(NamedTuple):
    """A request field. `read` converts its value or raises ValueError.

    `schema` and `description` are for OpenAPI.
    """

    name: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any] = {}
    description: str = ""


def read_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raises ValueError, RecursionError.

    NaN, Infinity, and numbers too large for a double are rejected, at any depth.
    """
    # The standard library's parser is used because its errors have the position.
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


async def json_object(request: Request, is_not: str = "is not") -> dict[str, Any]:
    """The request body as a JSON object, empty without a body. Raises BadBody.

    `is_not` begins the error text for a body that is not JSON.
    """
    body = await request.body()
    if not body.strip():
        return {}
    try:
        found = read_json(body)
    except RecursionError:
        raise BadBody(f"the body {is_not} JSON that this service reads: it is nested too deeply") from None
    except ValueError as exc:
        raise BadBody(f"the body {is_not} JSON: {exc}") from None
    if not isinstance(found, dict):
        raise BadBody("the body must be a JSON object")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text:.40} is too large for a floating point number")
    return found


def checked_text(value: Any) -> str:
    """Return a text without NUL characters and unpaired surrogates. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("must be text without NUL characters and halves of characters")
    return value


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers in a query."""

    def read(value: str) -> int:
        if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not '{value}'")
        return int(value)

    return read


def choice(options: Collection[str]) -> Callable[[str], str]:
    """Return a reader that accepts only these words."""

    def read(value: str) -> str:
        if value not in options:
            raise ValueError(f"must be one of {', '.join(options)}, not '{value}'")
        return value

    return read


def optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader that also accepts an empty text: a form sends a field even if it was not filled in."""
    return lambda value: read(value) if value else value


def pick(given: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """Read the given values by the table `fields`. Raises BadFields, also for an unknown name."""
    known = {field.name: field for field in fields}
    values, problems = {}, []
    for name, value in given.items():
        field = known.get(name)
        if field is None:
            problems.append((name, f"is not known here; known: {', '.join(known) or 'none'}"))
            continue
        try:
            values[name] = field.read(value)
        except ValueError as exc:
            problems.append((name, str(exc)))
    if problems:
        raise BadFields(problems)
    return values


def of_query(request: Request, fields: Iterable[Field]) -> dict[str, Any]:
    """Read the query of a request. Raises BadFields, also for a field that is given twice."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in given:
            raise BadFields([(name, f"must be given once, not as '{given[name]}' and as '{value}'")])
        given[name] = value
    return pick(given, fields)
