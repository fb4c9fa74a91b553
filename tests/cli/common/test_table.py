"""Tables of the commands that list things."""

from __future__ import annotations

from typing import Dict, List

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, layout_of, printable, show
from headrace.wire.query.format import Format

FORMATS = {"default": "{name:<4} ?:{note}"}
HEADINGS = {"name": "NAME", "note": "NOTE"}


def layout(text: str) -> Format:
    made = layout_of(text, Formats("flux-x", FORMATS, {"default": "What is usual"}), HEADINGS)
    assert made is not None
    return made


@pytest.mark.parametrize(("no_header", "first"), [(False, ["NAME"]), (True, [])])
def test_rows_stand_under_the_header_and_an_empty_column_goes(
    no_header: bool, first: List[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows: List[Dict[str, str]] = [{"name": "a", "note": ""}, {"name": "b", "note": ""}]
    show(layout("default"), [row.__getitem__ for row in rows], no_header)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [*first, "a", "b"]


def test_help_lists_the_formats_and_is_no_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert layout_of("help", Formats("flux-x", FORMATS, {"default": "What is usual"}), HEADINGS) is None
    assert "Configured flux-x output formats:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"), [("nosuch", "Unknown format name nosuch"), ("{moon}", "Unknown format field: moon")]
)
def test_a_format_that_cannot_be_used_ends_the_command(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        layout(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b", "a b"),
        ("\x1b[31m\r\n\t", "\\x1b[31m\\r\\n\\t"),
        ("\x7f\x85\x9b2J", "\\x7f\\x85\\x9b2J"),
        ("a\u202etxt.exe\u2066\u2028", "a\\u202etxt.exe\\u2066\\u2028"),
        # Characters that are no letters are only shown, also such as a no-break space and a joined emoji.
        ("\u0192\u00e9\u00a0\U0001f469\u200d\U0001f52c", "\u0192\u00e9\u00a0\U0001f469\u200d\U0001f52c"),
    ],
)
def test_what_a_terminal_would_obey_is_written_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
