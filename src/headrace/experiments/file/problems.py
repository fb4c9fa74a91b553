"""What is wrong with a file: each problem has its line and key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

# Maximum number of problems that one error lists.
_MOST = 20
# Maximum number of known names that the error for an unknown one lists.
_MOST_NAMES = 12
# Maximum number of characters of a key that an error shows.
_LONGEST_KEY = 80


class Problem(NamedTuple):
    """One problem: its line (0: the whole file), the key ("" for the document), and the broken rule."""

    line: int
    key: str
    rule: str

    def text(self, file: str) -> str:
        """`FILE:LINE: KEY: RULE`."""
        where = f"{file}:{self.line}" if self.line else file
        key = self.key if len(self.key) <= _LONGEST_KEY else f"{self.key[:_LONGEST_KEY]}…"
        return f"{where}: {key}: {self.rule}" if key else f"{where}: {self.rule}"


class InvalidExperiment(ValueError):
    """The file describes no valid experiment. `problems` lists everything that is wrong, in order of lines.

    The message has a line for each problem, after the name of the file.
    """

    def __init__(self, problems: Iterable[Problem], file: str = "") -> None:
        self.problems = sorted(dict.fromkeys(problems))
        lines = [problem.text(file) for problem in self.problems[:_MOST]]
        if len(self.problems) > _MOST:
            lines.append(f"{file}: and {len(self.problems) - _MOST} more errors")
        super().__init__("\n".join(lines))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The rule for an unknown name, with the nearest known ones, or with all if none is near and they are few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"use one of {', '.join(names)}"
    return f"is not a known {kind}" + (f" ({hint})" if close or 0 < len(names) <= _MOST_NAMES else "")
