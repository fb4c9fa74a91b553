"""Spoils nested data and text, by a seeded die: what people and programs write when they get a format wrong."""

from __future__ import annotations

import copy
import random
import string
from typing import Any

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", " ", "0", "-1", "0-3", "3-0", "[0-", "a" * 5000, "\0", "\u2028", "ƒ", "../..", "node[0-99999999]", "1h", "%"),
    *([], {}, [[]], [None], {"": None}, {"min": 3, "max": 1}, [{}], {"and": [{"or": []}]}, ["x"] * 50),
]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a value."""
    found: list[tuple[Any, Any]] = []
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        found.append((value, key))
        found += _places(value[key])
    return found


def mutated(dice: random.Random, original: Any, changes: int = 3) -> Any:
    """A copy with up to `changes` values replaced, removed, doubled, wrapped, renamed or moved."""
    value = copy.deepcopy(original)
    for _ in range(dice.randint(1, changes)):
        places = _places(value)
        if not places:
            return dice.choice(ODD)
        place, key = dice.choice(places)
        kind = dice.randrange(8)
        if kind < 3:
            place[key] = copy.deepcopy(dice.choice(ODD))
        elif kind == 3:
            del place[key]
        elif kind == 4:
            place[key] = dice.choice([[place[key]], {"x": place[key]}, str(place[key]), [place[key]] * 2])
        elif kind == 5:
            other, where = dice.choice(places)
            place[key] = copy.deepcopy(other[where])
        elif isinstance(place, dict):
            text = str(key)
            place[dice.choice([text.upper(), text[:-1], text + "s", "x"])] = place.pop(key)
        else:
            place.append(copy.deepcopy(place[key]))
    return value


def mangled(dice: random.Random, text: str, changes: int = 4) -> str:
    """Text with characters changed, lines lost, doubled, shifted or cut short."""
    for _ in range(dice.randint(1, changes)):
        lines = text.split("\n")
        index = dice.randrange(len(lines))
        kind = dice.randrange(6)
        if kind == 0 and text:
            place = dice.randrange(len(text))
            text = text[:place] + dice.choice(string.printable + "\u2028é\0") + text[place + 1 :]
            continue
        if kind == 1:
            del lines[index]
        elif kind == 2:
            lines.insert(dice.randrange(len(lines)), lines[index])
        elif kind == 3:
            lines[index] = dice.choice([" ", "  ", "\t", "- "]) + lines[index]
        elif kind == 4:
            lines[index] = lines[index][: dice.randrange(len(lines[index]) + 1)]
        else:
            key, sep, _ = lines[index].partition(dice.choice([":", "="]))
            lines[index] = (
                key + sep + " " + dice.choice(["null", "[", "{}", "&a *a", "'", "-1", "1e999", "yes", "!!x 1"])
            )
        text = "\n".join(lines)
    return text
