"""The broker's configuration (flux-config(5)): a file or a folder of files, and `--conf` settings.

A later file or setting overrides an earlier one key by key. An invalid file is rejected as a whole, with an error that
names the file and the line.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ..spec import plain_json
from ..spec.plain_json import as_json


class ConfigError(ValueError):
    """An invalid configuration file or setting; the message names it."""


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `over`, merged table by table; neither argument is changed."""
    out = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = value
    return out


def _toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError.

    The parser is imported here because most instances have no configuration.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    table: dict[str, Any] = tomllib.loads(text)
    return table


def parse_file(path: str) -> dict[str, Any]:
    """The contents of one TOML or JSON file. Raises ConfigError."""
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from None
    try:
        found = plain_json.loads(data.decode("utf-8-sig")) if path.endswith(".json") else _toml(data.decode("utf-8"))
        parsed = as_json(found)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{path}: {exc}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{path}: the top level must be a table")
    return parsed


def read(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (path, contents) of a file, or of each `*.toml` and `*.json` of a folder, sorted by name.

    Raises ConfigError.
    """
    if not os.path.isdir(path):
        return [(path, parse_file(path))]
    try:
        names = sorted(os.listdir(path))
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from None
    chosen = [os.path.join(path, name) for name in names if name.endswith((".toml", ".json")) and name[0] != "."]
    return [(name, parse_file(name)) for name in chosen]


def load(path: str) -> dict[str, Any]:
    """The contents of a file, or of all files in a folder, merged. Raises ConfigError."""
    config: dict[str, Any] = {}
    for _name, table in read(path):
        config = merge(config, table)
    return config


def setting(text: str) -> dict[str, Any]:
    """Parse a `--conf` argument: `a.b=VALUE`, a file or folder, or TOML or JSON text. Raises ConfigError.

    VALUE is JSON or TOML; any other text is a string.
    """
    if "=" not in text.split("\n", 1)[0] and os.path.exists(text):
        return load(text)
    stripped = text.lstrip()
    if stripped.startswith("{") or "\n" in text or stripped.startswith("["):
        try:
            parsed = as_json(plain_json.loads(text) if stripped.startswith("{") else _toml(text))
        except ValueError as exc:
            raise ConfigError(f"--conf: {exc}") from None
        if not isinstance(parsed, dict):
            raise ConfigError("--conf: the top level must be a table")
        return parsed
    key, sep, value = text.partition("=")
    if not sep or not key:
        raise ConfigError(f"--conf={text}: write KEY=VALUE, a file name, or TOML text")
    try:
        parsed_value: Any = plain_json.loads(value)
    except ValueError:
        try:
            parsed_value = _toml(f"x = {value}")["x"]
        except ValueError:
            parsed_value = value
    out: dict[str, Any] = {}
    here = out
    *parents, last = key.split(".")
    for name in parents:
        here = here.setdefault(name, {})
    here[last] = parsed_value
    try:
        return dict(as_json(out))
    except ValueError as exc:
        raise ConfigError(f"--conf: {exc}") from None


def from_options(path: str | None, settings: list[str]) -> dict[str, Any]:
    """The configuration of `-c PATH` and the `--conf` options, merged. Raises ConfigError."""
    config = load(path) if path else {}
    for text in settings:
        config = merge(config, setting(text))
    return config
