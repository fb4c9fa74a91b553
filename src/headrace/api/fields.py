"""Fields of requests that are wrong, for all interfaces, and what every text of a request must be."""

from __future__ import annotations

from typing import Any


class BadFields(ValueError):
    """Fields of the wrong kind: `problems` has (name, text for users)."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in problems))
        self.problems = problems


def checked_text(value: Any) -> str:
    """Text as programs and files can have it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("must be text without NUL characters and halves of characters")
    return value
