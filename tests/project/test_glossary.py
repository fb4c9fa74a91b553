"""The glossary names files that exist, and explains each word once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/dev/glossary.md").read_text(), re.M
)
WORDS = [row for row in ROWS if row[0] not in ("word", "---")]


def test_words_are_explained_once() -> None:
    words = [word for word, _, _, _ in WORDS]
    assert len(words) > 20
    assert len(set(words)) == len(words)


def test_files_exist() -> None:
    for word, _, where, _ in WORDS:
        files = re.findall(r"`([^`]+)`", where)
        assert files, word
        for file in files:
            assert (ROOT / "src/headrace" / file).exists(), f"{word}: {file}"
