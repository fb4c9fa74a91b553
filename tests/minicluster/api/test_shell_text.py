"""Command lines that need no shell have the words that a shell makes of them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.api.shell_text import plain_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flux submit -n2 hostname\n", ["flux", "submit", "-n2", "hostname"]),
        ("a 'b (c) $d' \"e f\"", ["a", "b (c) $d", "e f"]),
        ("a x=1", ["a", "x=1"]),
        ("a ''", ["a", ""]),
        ("X=1 a", None),
        ("a $B", None),
        ('a "$B"', None),
        ("a > b", None),
        ("a; b", None),
        ("a *", None),
        ("~/a", None),
        ("a \\b", None),
        ("a 'b", None),
        ("a\nb", None),
        ("", None),
    ],
)
def test_only_words_and_quoted_text_are_taken(text: str, words: list[str] | None) -> None:
    assert plain_words(text) == words


@given(st.text("ab '\"$\\*=;-", min_size=1, max_size=12))
def test_a_shell_makes_the_same_words(text: str) -> None:
    words = plain_words("/x " + text)
    if words is not None:
        done = subprocess.run(
            ["/bin/sh", "-c", f"set -- /x {text}\nprintf '%s\\n' \"$@\""], capture_output=True, text=True, check=True
        )
        assert done.stdout.split("\n")[:-1] == words
