"""A configuration as TOML text (TOML 1.0), for the broker.toml in a pod. Pure."""

from __future__ import annotations

import re
from typing import Any

_ESCAPES = {code: f"\\u{code:04X}" for code in (*range(32), 127)} | {ord(one): f"\\{one}" for one in '"\\'}
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def toml_text(tables: dict[str, Any]) -> str:
    """The text of tables with strings, numbers, booleans, times, arrays and tables.

    Raises TypeError for others.
    """
    lines: list[str] = []
    _table(lines, [], tables)
    return "\n".join(lines) + "\n" if lines else ""


def _table(lines: list[str], path: list[str], table: dict[str, Any]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (plain or not table):
        lines += [""] if lines else []
        lines.append(f"[{'.'.join(map(_key, path))}]")
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            _table(lines, [*path, key], value)


def _key(key: str) -> str:
    return key if _BARE.match(key) else _string(key)


def _string(text: str) -> str:
    # A basic string. The package json could write it, but takes longer to import than this file.
    return f'"{text.translate(_ESCAPES)}"'


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"no value of TOML: {value!r}")
