"""What a terminal would show: colours, and lines that were rewritten."""

from __future__ import annotations

import time

import pytest

from headrace.service.pages.terminal import LONGEST_LINE, Screen, without_controls


def shown(*texts: str) -> list[tuple[str, str]]:
    screen = Screen()
    done = [run for text in texts for run in screen.feed(text)]
    return [tuple(run) for run in [*done, *screen.line()]]  # type: ignore[misc]


def plain(*texts: str) -> str:
    return "".join(text for _, text in shown(*texts))


@pytest.mark.parametrize(
    ("codes", "style"),
    [
        ("31", "red"),
        ("1;32", "green bold"),
        ("91", "red"),
        ("90", "gray"),
        ("37;44", "white on-blue"),
        ("7", "inverse"),
        ("7;31", "on-red"),
        ("38;5;196", "red"),
        ("38;5;9", "red"),
        ("38;5;244", "gray"),
        ("38;2;10;200;20", "green"),
        ("38:2:10:200:20", "green"),
        ("48;5;21", "on-blue"),
        ("31;39", ""),
        ("1;31;22", "red"),
        ("31;0", ""),
        ("31;", ""),
        ("999;38;5", "black"),
        ("38;2;1", ""),
        ("38", ""),
    ],
)
def test_colours_are_classes(codes: str, style: str) -> None:
    assert shown(f"\x1b[{codes}mx") == [(style, "x")]


def test_a_colour_lasts_until_it_is_ended_also_over_lines_and_texts() -> None:
    assert shown("a\x1b[3", "1mb\nc", "d\x1b[", "0", "me\n") == [
        *[("", "a"), ("red", "b"), ("", "\n"), ("red", "cd"), ("", "e"), ("", "\n")],
    ]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["10%", "\r20%", "\r100%\n"], "100%\n"),
        (["[#   ]\r", "[##  ]\r", "\n"], "[##  ]\n"),
        (["long line\rshort"], "shortline"),
        (["long line\r\x1b[Kshort"], "short"),
        (["x\r\x1b[2Ky"], "y"),
        (["abc\x1b[1Kd"], "   d"),
        (["|\b/\b-\b\\\n"], "\\\n"),
        (["\b\b\rx"], "x"),
        (["abc\x1b[2DX"], "aXc"),
        (["abc\x1b[1GX"], "Xbc"),
        (["abc\r\x1b[1CX\x1b[99CY"], "aXcY"),
        (["one\r\ntwo\r\n"], "one\ntwo\n"),
        (["a\nb\nc\rd"], "a\nb\nd"),
        (["up\x1b[2A\x1b[2J\x1b[?25l\x1b(B\x1b7 here\x07"], "up here"),
        (["\x1b]0;title\x07\x1b]8;;http://x\x1b", "\\link\x1b]8;;\x1b\\"], "link"),
        (["tab\there \x00\x9b"], "tab\there "),
        (["\x1b[31"], ""),
        (["\x1b\nx"], "\nx"),
    ],
)
def test_a_line_is_shown_as_it_was_written_last(texts: list[str], line: str) -> None:
    assert plain(*texts) == line
    assert plain(*"".join(texts)) == line


def test_a_long_line_is_shown_whole_and_costs_no_more_than_its_length() -> None:
    begin = time.process_time()
    for text in ("x\r" * 500_000, "\x1b[31mx\b" * 100_000, "\x1b]" * 100_000, "\x1b[0" * 100_000, "\x1b[99D" * 100_000):
        plain(text)
    assert time.process_time() - begin < 10
    assert plain("x" * 5000 + "\n") == "x" * 5000 + "\n"
    screen = Screen()
    for _ in range(100):
        screen.feed("y" * 100)
    assert sum(len(run.text) for run in screen.line()) <= LONGEST_LINE


def test_only_colours_are_taken_out_of_what_is_searched() -> None:
    assert without_controls("a\x1b[1;31mb\x1b[0mc\rd") == "abc\rd"
