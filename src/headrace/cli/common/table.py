"""Tables of the commands that list things: the format of `-o`, and the lines on stdout."""

from __future__ import annotations

import sys

from headrace.cli.common.named_formats import Formats, refused
from headrace.query.format import Format, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional

    from headrace.query.format import Getter


def layout_of(text: str, formats: Formats, headings: Mapping[str, str]) -> Optional[Format]:
    """The format of `-o text`; None when that asks for help, which is then shown. Raises CommandError."""
    try:
        chosen = formats.resolve(text, headings)
        return None if chosen is None else Format(chosen, headings)
    except FormatError as exc:
        raise refused(exc) from None


def show(layout: Format, rows: List[Getter], no_header: bool) -> None:
    """Write the rows, under a header unless it is not wanted."""
    layout.fit(rows, header=not no_header)
    lines = [] if no_header else [layout.header()]
    lines += [layout.row(row) for row in rows]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
