"""Which commands a mistyped name may have meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.common.suggestions import distance, programs, similar

COMMANDS = ("job", "jobs", "kvs", "resource", "restore", "run", "submit", "top", "uptime")
WORDS = st.text(alphabet="abc", max_size=6)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mom", ["job", "top"]),
        ("sumbit", ["submit"]),
        ("jbos", ["jobs"]),
        ("resourec", ["resource"]),
        ("rn", ["run"]),
        ("res", ["resource", "restore"]),
        ("u", ["uptime"]),
        ("resouurrccee", []),
        ("xyz", []),
        ("x", []),
    ],
)
def test_the_nearest_commands_are_meant_or_none(name: str, meant: list[str]) -> None:
    assert similar(name, COMMANDS) == meant


def test_there_are_at_most_three_and_none_twice() -> None:
    assert similar("ab", ["abe", "abd", "abd", "abc", "abf"]) == ["abc", "abd", "abe"]
    assert similar("ax", ["bx", "ay", "ay", "az", "aw"]) == ["aw", "ay", "az"]


@given(WORDS, WORDS)
def test_the_distance_is_symmetric_and_at_most_the_longer_word(one: str, other: str) -> None:
    assert distance(one, other) == distance(other, one) <= max(len(one), len(other))
    assert (distance(one, other) == 0) == (one == other)


@given(WORDS, st.integers(0, 5), st.sampled_from("abc"))
def test_one_letter_more_or_two_swapped_are_a_distance_of_one(word: str, at: int, letter: str) -> None:
    assert distance(word, word[:at] + letter + word[at:]) == 1
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    assert distance(word, swapped) == (word != swapped)


def test_programs_named_after_flux_are_commands(tmp_path: Path) -> None:
    for name, mode in (("flux-a", 0o755), ("flux-b.py", 0o755), ("flux-c", 0o644), ("d", 0o755)):
        (tmp_path / name).touch(mode)
    assert programs([str(tmp_path), "/nosuch"]) == {"a", "b"}
