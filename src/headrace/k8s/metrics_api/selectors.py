"""Label selectors as texts. Pure. Source: Kubernetes documentation, "Labels and Selectors"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Matches = Callable[[Mapping[str, str]], bool]

_KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_VALUE = r"[-A-Za-z0-9_.]*"
_FORMS = (
    re.compile(rf"{_KEY}\s*(?P<sign>!=|==|=)\s*(?P<value>{_VALUE})"),
    re.compile(rf"{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)"),
    re.compile(rf"(?P<sign>!?)\s*{_KEY}"),
)


def selector(text: str) -> Matches:
    """Whether labels meet all requirements of a text such as `a=b,c in (d,e),!f`. Raises ValueError."""
    # Commas within parentheses are between values.
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    tests = [_requirement(part) for part in parts]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(part: str) -> Matches:
    found = next(filter(None, (form.fullmatch(part) for form in _FORMS)), None)
    if found is None:
        raise ValueError(f"'{part}' is no requirement of a label selector")
    fields = found.groupdict()
    key, sign = fields["key"], fields["sign"]
    if "values" in fields:
        values = {value.strip() for value in fields["values"].split(",")}
    elif "value" in fields:
        values = {fields["value"]}
    else:
        return lambda labels: (key in labels) == (sign == "")
    if sign in ("!=", "notin"):
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values
