"""`--conf`: an instance's configuration from the command line of `flux batch`, `alloc` and `start`.

A value is one of:

- `KEY=VALUE`, where VALUE is JSON or else a string;
- a TOML or JSON file;
- TOML or JSON text of several lines;
- the NAME of a file NAME.toml or NAME.json in the folder flux/config of the user's or the site's configuration (XDG
  base directories).
"""

from __future__ import annotations

import json
import os
import sys

from headrace.formats.spec.plain_json import as_json
from headrace.wire.query import QueryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Sequence


def merge(texts: Sequence[str], conf: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Merge all values into `conf` (default: empty) and return it; a later value overrides.

    Raises QueryError, OSError.
    """
    conf = {} if conf is None else conf
    for text in texts:
        _update(conf, _read(text))
    return conf


def _read(text: str) -> Dict[str, Any]:
    if "\n" in text or text.lstrip()[:1] == "{":
        return decode(text, "--conf")
    if os.path.exists(text):
        return read_path(text)
    key, equals, value = text.partition("=")
    if not equals:
        if "/" in text or text.endswith((".toml", ".json")):
            raise QueryError(f"--conf: No such file: {text}")
        return read_path(_named(text))
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    for part in reversed(key.split(".")):
        parsed = {part: parsed}
    return dict(parsed)


def _named(name: str) -> str:
    """The path of a named configuration. Raises QueryError."""
    from headrace.wire.client.installation import config_folders

    for folder in config_folders():
        for ending in (".toml", ".json"):
            path = os.path.join(folder, "flux", "config", name + ending)
            if os.path.exists(path):
                return path
    raise QueryError(f"--conf: named config '{name}' not found")


def read_path(path: str) -> Dict[str, Any]:
    """The configuration in a file, or in the *.toml files of a directory. Raises QueryError, OSError."""
    if not os.path.isdir(path):
        with open(path, encoding="utf-8") as file:
            return decode(file.read(), path)
    conf: Dict[str, Any] = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".toml"):
            _update(conf, read_path(os.path.join(path, name)))
    return conf


def decode(text: str, where: str) -> Dict[str, Any]:
    """Decode a configuration's text, JSON or TOML. Raises QueryError, whose message begins with `where`."""
    try:
        found = json.loads(text) if text.lstrip()[:1] == "{" else _toml(text)
    except ValueError as exc:
        trouble = "failed to parse its text" if where == "--conf" else "parse error"
        raise QueryError(f"{where}: {trouble}: {exc}") from None
    if not isinstance(found, dict):
        raise QueryError(f"{where}: a configuration is a table, this is a {type(found).__name__}")
    try:
        return dict(as_json(found))
    except ValueError as exc:
        raise QueryError(f"{where}: {exc}") from None


def _toml(text: str) -> Any:
    try:
        tomllib = __import__("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise QueryError("--conf: reading TOML needs Python 3.11 or later, or tomli; give JSON or KEY=VALUE") from None
    return tomllib.loads(text)


def _update(into: Dict[str, Any], new: Dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _update(into[key], value)
        else:
            into[key] = value
