"""The kind of a JSON value, as error messages name it."""

from __future__ import annotations

from typing import Any


def kind_of(value: Any) -> str:
    """Return the kind of a decoded value: ``an object``, ``a number``; ``missing or null`` for None."""
    if value is None:
        return "missing or null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)
