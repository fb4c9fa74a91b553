"""Tables of the commands that list things: the format of `-o`, texts fit for a terminal, and the lines on stdout."""

from __future__ import annotations

import sys

from headrace.cli.common.named_formats import Formats, refused
from headrace.wire.query.format import Format, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional

    from headrace.wire.query.format import Getter


# What a terminal obeys: control characters, line and paragraph separators, and what turns the direction of writing.
_OBEYED = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def layout_of(text: str, formats: Formats, headings: Mapping[str, str]) -> Optional[Format]:
    """The format of `-o text`; None when that asks for help, which is then shown. Raises CommandError."""
    try:
        chosen = formats.resolve(text, headings)
        return None if chosen is None else Format(chosen, headings)
    except FormatError as exc:
        raise refused(exc) from None


def printable(text: str) -> str:
    """A text that some user has chosen, with escapes such as `\\n` for the characters that would garble a table."""
    if text.isprintable():
        return text
    import re

    return re.sub(_OBEYED, lambda match: repr(match[0])[1:-1], text)


def show(layout: Format, rows: List[Getter], no_header: bool) -> None:
    """Write the rows, under a header unless it is not wanted."""
    layout.fit(rows, header=not no_header)
    lines = [] if no_header else [layout.header()]
    lines += [layout.row(row) for row in rows]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
