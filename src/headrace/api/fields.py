"""Fields of requests, for all interfaces: what reads them, what is said of those that are wrong, and what every text
must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class BadFields(ValueError):
    """Fields of the wrong kind: `problems` has (name, text for users)."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in problems))
        self.problems = problems


class Field(NamedTuple):
    """A field: what reads its value (raises ValueError), and its schema in OpenAPI."""

    name: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    description: str


def checked_text(value: Any) -> str:
    """Text as programs and files can have it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("must be text without NUL characters and halves of characters")
    return value


def pick(given: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """The values of those fields that were given. Raises BadFields."""
    known = {field.name: field for field in fields}
    values, problems = {}, []
    for name, value in given.items():
        field = known.get(name)
        if field is None:
            problems.append((name, f"is not known here: there are {', '.join(known) or 'no fields'}"))
            continue
        try:
            values[name] = field.read(value)
        except ValueError as exc:
            problems.append((name, str(exc)))
    if problems:
        raise BadFields(problems)
    return values
