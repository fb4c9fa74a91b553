"""Suggests commands that are similar to an unknown name."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Set

_MOST = 3
# Names of up to _SHORT letters may differ in _FEW letters, longer names in _MANY.
_SHORT, _FEW, _MANY = 6, 2, 3


def similar(name: str, commands: Iterable[str]) -> List[str]:
    """At most three sorted commands that start with `name`, otherwise those with the smallest distance."""
    known = sorted(set(commands))
    begun = [command for command in known if command.startswith(name)]
    if begun:
        return begun[:_MOST]
    limit = min(_FEW if len(name) <= _SHORT else _MANY, len(name) - 1)
    distances = {command: distance(name, command) for command in known}
    least = min(distances.values(), default=limit + 1)
    return [command for command in known if distances[command] == least][:_MOST] if least <= limit else []


def distance(one: str, other: str) -> int:
    """The Damerau-Levenshtein distance: letters to add, remove, replace, or swap with the next one."""
    before: List[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one):
        above, row = row, [at + 1]
        for to, wanted in enumerate(other):
            least = min(above[to + 1] + 1, row[to] + 1, above[to] + (letter != wanted))
            if at and to and letter == other[to - 1] and one[at - 1] == wanted:
                least = min(least, before[to - 1] + 1)
            row.append(least)
        before = above
    return row[-1]


def programs(folders: Iterable[str]) -> Set[str]:
    """The names of external commands: programs `flux-NAME` and `flux-NAME.py` in these folders."""
    found: Set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for file in names:
            if file.startswith("flux-") and os.access(os.path.join(folder, file), os.X_OK):
                found.add(file[5:-3] if file.endswith(".py") else file[5:])
    return found
