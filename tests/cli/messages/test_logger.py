"""Entries of the log from the command line."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.messages import logger


@pytest.fixture
def logged(answers: Any, monkeypatch: Any) -> Any:
    """`logged(ARGV, stdin)`: the entries, each without time and process."""

    def run(argv: list[str], stdin: bytes = b"") -> list[str]:
        broker = answers(logger, {"rank": "3", "size": "4"})
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        assert logger.main(argv) == 0
        entries = []
        for topic, line in broker.asked:
            assert topic == "log.append"
            head, _time, rank, app, _pid, _id, _data, text = line.split(" ", 7)
            assert rank == "3"
            entries.append(f"{head} {app}: {text}")
        return entries

    return run


def test_words_are_one_entry_lines_one_each(logged: Any) -> None:
    assert logged(["a", " b", "c"]) == ["<13>1 logger:  a  b c".replace(":  ", ": ")]
    assert logged(["-s", "err", "-n", "me", "x"]) == ["<11>1 me: x"]
    assert logged([], b"one\n\n\0\ntwo\r\nthree") == ["<13>1 logger: one", "<13>1 logger: two", "<13>1 logger: three"]
    assert logged([], b"") == []
    assert logged([""]) == []


def test_no_word_makes_a_line_that_looks_like_anothers(logged: Any) -> None:
    assert logged(["one\n<11>1 2026 0 broker - - - two"]) == [
        "<13>1 logger: one",
        "<13>1 logger: <11>1 2026 0 broker - - - two",
    ]


def test_bytes_that_are_no_text_are_replaced(logged: Any) -> None:
    assert logged(["a\udcffb"]) == logged([], b"a\xffb\n") == ["<13>1 logger: a\ufffdb"]


@pytest.mark.parametrize(
    "argv", [["-s", "bogus"], ["-s", ""], ["-n", "a b"], ["-n", ""], ["-n", "a\n"], ["-n", "\udcff"]]
)
def test_what_is_no_severity_or_name_is_refused(argv: list[str]) -> None:
    with pytest.raises(CommandError, match=r"invalid (severity|appname)"):
        logger.main([*argv, "x"])
