"""The options of every command that shows an eventlog."""

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
        "Print times as raw seconds, iso dates, offset from the first event, or for a human",
    ),
    ("H", "human", "", "Short for --time-format=human"),
    ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
)


def formatter(options: Options) -> Formatter:
    """The formatter that a command's options (OPTIONS) ask for."""
    times = "human" if options.has("human") else options.get("time-format", "raw")
    return Formatter(options.get("format", "text"), times, option_wants_color(options))


def option_wants_color(options: Options) -> bool:
    """Whether `--color[=WHEN]`, or its absence, means that stdout gets colors. Raises CommandError."""
    return wants_color((options.get("color") or "always") if options.has("color") else "auto")


def write(text: str) -> None:
    """Write and flush: what follows an eventlog wants each event as it comes."""
    sys.stdout.write(text)
    sys.stdout.flush()
