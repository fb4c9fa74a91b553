"""Configuration values as JSON (RFC 8259), the form in which brokers and commands exchange a TOML configuration."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple


def as_json(value: Any, path: Tuple[str, ...] = ()) -> Any:
    """A value of a configuration as JSON has it, with dates and times as text (ISO 8601).

    Raises ValueError with the key of a number that is infinite or not a number.
    """
    if isinstance(value, dict):
        return {key: as_json(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner, (*path[:-1], f"{path[-1]}[{index}]")) for index, inner in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{'.'.join(path)}: must be a finite number, not {value}")
    # Only dates and times have this method; their classes are not imported for a configuration without them.
    return value.isoformat() if hasattr(value, "isoformat") else value
