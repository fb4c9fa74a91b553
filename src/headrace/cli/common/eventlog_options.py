"""Options of all commands that show an eventlog."""

from __future__ import annotations

import sys

from headrace.wire.query.eventlog_format import Formatter, wants_color

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.cli.common.getopts import Options

OPTIONS = (
    ("f", "format", "FORMAT", "Print each event as text or as json"),
    (
        "T",
        "time-format",
        "FORMAT",
        "Format of times: raw (seconds), iso, offset (from the first event) or human",
    ),
    ("H", "human", "", "Short for --time-format=human"),
    ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
)


def formatter(options: Options) -> Formatter:
    """The formatter for a command's options (OPTIONS)."""
    times = "human" if options.has("human") else options.get("time-format", "raw")
    return Formatter(options.get("format", "text"), times, option_wants_color(options))


def option_wants_color(options: Options) -> bool:
    """True if stdout gets colors by `--color[=WHEN]`, or by default without it. Raises CommandError."""
    return wants_color((options.get("color") or "always") if options.has("color") else "auto")


def write(text: str) -> None:
    """Write and flush, so that a reader of the output sees each event at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
