"""Job dependencies (RFC 26): objects, and the compact form ``scheme:value[?key=val&key=val]``."""

from __future__ import annotations

from typing import Any, Dict, List
from urllib.parse import parse_qs, quote_plus


class DependencyError(ValueError):
    """A dependency is not well formed; the message shows it and the correct form."""


def parse(text: str) -> Dict[str, Any]:
    """Parse ``scheme:value[?key=val[&key=val...]]`` into {scheme, value, key: val}.

    Raises DependencyError. A key that is given several times becomes a list. ``singleton`` has no colon; its value is
    empty.
    """
    if text == "singleton":
        return {"scheme": "singleton", "value": ""}
    scheme, colon, rest = text.partition(":")
    value, question, query = rest.partition("?")
    if not scheme or not colon:
        raise DependencyError(f'Invalid dependency URI "{text}": use scheme:value, such as afterok:JOBID')
    dependency: Dict[str, Any] = {"scheme": scheme, "value": value}
    if question:
        try:
            options = parse_qs(query.replace(";", "&"), keep_blank_values=True, strict_parsing=True)
        except ValueError:
            options = {}
        if not options:
            raise DependencyError(f'Invalid dependency URI "{text}": after ? use key=value[&key=value...]')
        for key, values in options.items():
            if key in dependency:
                raise DependencyError(f'Invalid dependency URI "{text}": {key} is not an option')
            dependency[key] = values if len(values) > 1 else values[0]
    return dependency


def encode(dependency: Dict[str, Any]) -> str:
    """Return the compact form of a dependency object; raises DependencyError if it is not one."""
    validate(dependency)
    scheme, value = dependency["scheme"], dependency["value"]
    pairs: List[str] = []
    for key, item in dependency.items():
        if key not in {"scheme", "value"}:
            pairs.extend(
                f"{quote_plus(key)}={quote_plus(str(one))}" for one in (item if isinstance(item, list) else [item])
            )
    if scheme == "singleton" and not value and not pairs:
        return "singleton"
    return f"{scheme}:{value}" + (f"?{'&'.join(pairs)}" if pairs else "")


def validate(dependency: Any) -> None:
    """Check one element of ``attributes.system.dependencies``; raises DependencyError."""
    if not isinstance(dependency, dict):
        raise DependencyError(f"dependency must be an object with scheme and value, not {dependency!r}")
    for key in ("scheme", "value"):
        if not isinstance(dependency.get(key), str):
            raise DependencyError(f"dependency {key} must be a string, not {dependency.get(key)!r}")
