"""Converts records of a MiniCluster's fields into the JSON of the Kubernetes API, where absent means unset."""

from __future__ import annotations

from typing import Any

import msgspec

from ...api.fields import Record


def as_object(record: Record | None) -> dict[str, Any]:
    """The fields of a record that are set, under the API's names. A given `false` or 0 is included."""
    unset: dict[str, Any] = {}
    return unset if record is None else _set_only(msgspec.to_builtins(record))


def without_unset(fields: dict[str, Any]) -> dict[str, Any]:
    """The entries with a value: not None, "" or an empty list or mapping."""
    return {key: value for key, value in fields.items() if value is not None and value not in ("", [], {})}


def _set_only(value: Any) -> Any:
    if isinstance(value, dict):
        return without_unset({key: _set_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_set_only(item) for item in value]
    return value
