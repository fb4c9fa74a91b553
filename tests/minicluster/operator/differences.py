"""Compares the objects of a MiniCluster with those that the Flux Operator made of it, and reads the table of intended
differences.

The table is the user's page `minicluster-differences.md`. A row has a path, what the Flux Operator has there, what
Headrace has there, and why. The two values are JSON, `absent` where nothing is there, or a path in the MiniCluster
(`spec.…`) whose value they have. A word in braces is either a name of the case at hand (`{name}` is the MiniCluster's),
or one text that is the same wherever the row has that word (`{i}`, `{container}`). The text "…" is any value. All else
must be exactly as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[3] / "docs/user/minicluster-differences.md"
ABSENT = "absent"
_ANY = '"\\u2026"'  # "…" as JSON has it
# The key by which the items of a list of the Kubernetes API are told apart.
_KEYS = ("mountPath", "containerPort", "port", "name", "key")


class Row(NamedTuple):
    path: str
    theirs: str
    ours: str
    why: str


class Difference(NamedTuple):
    """One place where two objects differ; a value is JSON text, or ABSENT."""

    path: str
    theirs: str
    ours: str


def table() -> list[Row]:
    """The rows of all tables of the page whose first column is a path."""
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 4:
            rows.append(Row(cells[0].strip("`"), cells[1].strip("`"), cells[2].strip("`"), cells[3]))
    return rows


def differences(theirs: Any, ours: Any, path: str, expected: Callable[[Difference], object]) -> Iterator[Difference]:
    """The places where two values differ: each as high up as an expected difference is, else as deep as can be told."""
    if theirs == ours:
        return
    one = Difference(path, _text(theirs), _text(ours))
    key = _key_of(theirs, ours)
    if expected(one):
        yield one
    elif all(isinstance(side, dict) for side in (theirs, ours) if side is not ABSENT):
        left, right = ({} if side is ABSENT else side for side in (theirs, ours))
        yield from _below(left, right, lambda name: f"{path}.{name}", expected) if left or right else [one]
    elif key:
        left, right = (_by_key(side, key) for side in (theirs, ours))
        yield from _below(left, right, lambda name: f"{path}[{name}]", expected)
    else:
        yield one


def _below(
    left: dict[str, Any], right: dict[str, Any], path: Callable[[str], str], expected: Callable[[Difference], object]
) -> Iterator[Difference]:
    for name in sorted(left.keys() | right.keys()):
        yield from differences(left.get(name, ABSENT), right.get(name, ABSENT), path(name), expected)


def matches(row: Row, one: Difference, names: dict[str, str], document: dict[str, Any]) -> bool:
    """Whether the row is about this place and has these values."""
    seen: set[str] = set()

    def pattern(text: str) -> str:
        """A regular expression for a text with words in braces."""
        out = ""
        for index, part in enumerate(re.split(r"\{(\w+)\}", text)):
            if index % 2 == 0:
                out += re.escape(part)
            elif part in names:
                out += re.escape(names[part])
            else:
                out += f"(?P={part})" if part in seen else f'(?P<{part}>[^][",]+)'
                seen.add(part)
        return out.replace(re.escape(_ANY), ".*")

    found = re.fullmatch(pattern(row.path), one.path)
    if not found:
        return False
    words = found.groupdict()
    texts = [
        _value(re.sub(r"\{(\w+)\}", lambda word: words.get(word[1], word[0]), text), document) for text in row[1:3]
    ]
    seen.clear()
    return bool(re.fullmatch(pattern("\n".join(texts)), f"{one.theirs}\n{one.ours}"))


def without(value: Any, defaults: set[tuple[str, str]], path: str) -> Any:
    """A copy without what the API server fills in: each default is a path, `[]` for any item of a list, and its value
    as JSON."""
    if isinstance(value, dict):
        out = {}
        for key, item in value.items():
            below = f"{path}.{key}"
            item = without(item, defaults, below)
            if (below, _text(item)) not in defaults:
                out[key] = item
        return out
    if isinstance(value, list):
        return [without(item, defaults, f"{path}[]") for item in value]
    return value


def _value(text: str, document: dict[str, Any]) -> str:
    """The JSON text that a cell of the table stands for; a path of the MiniCluster that is not there is absent."""
    if text == ABSENT:
        return text
    if not text.startswith("spec."):
        return _text(json.loads(text))
    value: Any = document
    for part in text.split("."):
        value = value.get(part, {}) if isinstance(value, dict) else {}
    return _text(value) if value != {} else ABSENT


def _text(value: Any) -> str:
    return ABSENT if value is ABSENT else json.dumps(value, sort_keys=True)


def _by_key(items: Any, key: str) -> dict[str, Any]:
    return {} if items is ABSENT else {str(item[key]): item for item in items}


def _key_of(*lists: Any) -> str:
    """The key that tells the items of each list apart; "" where there is none."""
    for key in _KEYS:
        if all(_is_keyed(items, key) for items in lists if items is not ABSENT):
            return key
    return ""


def _is_keyed(items: Any, key: str) -> bool:
    return (
        isinstance(items, list)
        and all(isinstance(item, dict) and key in item for item in items)
        and len({str(item[key]) for item in items}) == len(items)
    )
