"""`{{name}}` templates in file names, arguments and environment values. An unknown tag stays as it is written."""

from __future__ import annotations

import re
from collections.abc import Callable

_TAG = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """`text` with every tag that `lookup` knows replaced."""
    if "{{" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        found = lookup(match[1])
        return match[0] if found is None else found

    return _TAG.sub(value, text)


def tags(text: str) -> set[str]:
    """The names used in `text`."""
    return set(_TAG.findall(text)) if "{{" in text else set()
