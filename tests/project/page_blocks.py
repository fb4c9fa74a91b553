"""The fenced blocks of a Markdown page, for tests that do what pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")? *\n(.*?)^\1``` *$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block: the page's path in the repository, its line there, what language it is in ("" if none is named), its
    title, and its text without the indentation of the fence."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def first(self) -> str:
        """Its first line, which names it where tests list blocks."""
        return self.text.split("\n", 1)[0].rstrip()


def blocks(page: str) -> list[Block]:
    """All blocks of the page of this path, in order."""
    text = (ROOT / page).read_text()
    found = []
    for fence in _FENCE.finditer(text):
        indent, language, title, inner = fence.groups()
        line = text.count("\n", 0, fence.start()) + 1
        inner = re.sub(f"^{indent}", "", inner, flags=re.MULTILINE)
        found.append(Block(page, line, language, title or "", inner))
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE)), f"{page}: a block is not closed"
    return found
