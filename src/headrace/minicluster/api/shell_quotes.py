"""Finds the quote that shell text opens and never closes (POSIX.1-2017, XCU 2.2). Pure.

The operator's image has no shell that could parse the text. Only text that no shell would run is reported: where a
quote's meaning depends on more than is parsed here (here-documents, backquotes, `$'...'`, quotes in `${...}` and
`$((...))`, `case` in `$(...)`), nothing is reported.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_QUOTES = "'\""
_BEFORE_COMMENT = frozenset(" \t\n;|&()<>")
# A shell that reaches one of these does not read the following lines.
_ENDS = re.compile(r"\b(exit|exec|return)\b")
_CASE = re.compile(r"\bcase\b")
_SHOWN = 24


# Characters that neither open nor close anything.
_PLAIN = re.compile(r"[^\\'\"$(){}`#<]+")


class OpenQuote(NamedTuple):
    """A quote that is never closed: its line, from 1, and the text from it on, truncated if it is long."""

    line: int
    excerpt: str

    def __str__(self) -> str:
        return f"the quote that begins in line {self.line} is never closed: {self.excerpt}"


@functools.lru_cache(maxsize=128)
def open_quote(text: str) -> OpenQuote | None:
    """The quote that `text` leaves open; None if all are closed, or if that cannot be determined. Cached, since each
    reconcile asks.
    """
    left = _left_open(text)
    opened = [at for closer, at in left if closer in _QUOTES]
    if not opened or ("$(" in text and _CASE.search(text)):
        return None
    if _ENDS.search(text[: text.rfind("\n", 0, opened[0]) + 1]):
        return None
    at = opened[-1]
    line, more, _ = text[at:].partition("\n")
    excerpt = f"{line[:_SHOWN]}..." if more or len(line) > _SHOWN else line
    return OpenQuote(text.count("\n", 0, at) + 1, excerpt)


def _left_open(text: str) -> list[tuple[str, int]]:
    """The open constructs at the end of `text`, outermost first: the character that would close each, and its position.
    Empty if they cannot be determined.
    """
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        plain = _PLAIN.match(text, at)
        if plain:
            at = plain.end()
            continue
        character, pair = text[at], text[at : at + 2]
        closer = opened[-1][0] if opened else ""
        if character == closer:
            opened.pop()
        elif closer == "'":
            pass
        elif character == "\\":
            at += 1
        elif _is_beyond(text[at : at + 3], closer):
            return []
        elif pair in ("$(", "${"):
            opened.append((")" if pair == "$(" else "}", at))
            at += 1
        elif character == "(" and closer == ")":
            opened.append((")", at))
        elif character == '"' or (character == "'" and closer != '"'):
            opened.append((character, at))
        elif character == "#" and closer in ("", ")") and (at == 0 or text[at - 1] in _BEFORE_COMMENT):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        at += 1
    return opened


def _is_beyond(ahead: str, closer: str) -> bool:
    """Whether `ahead`, three characters, begins with a construct whose quotes follow other rules, or rules that differ
    between shells.
    """
    if closer != '"' and ahead[:2] in ("<<", "$'"):
        return True
    return ahead[0] == "`" or ahead == "$((" or (closer == "}" and ahead[0] in _QUOTES)
