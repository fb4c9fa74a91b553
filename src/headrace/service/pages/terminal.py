"""A job's output as a terminal would show it.

Colours become classes of the style sheet. A line that is rewritten after carriage returns, as progress bars do, is
shown once. These control sequences (ECMA-48) have an effect: SGR, carriage return, backspace, erase in line, and cursor
movements within a line. All others are dropped. A line that has ended cannot be rewritten. The texts are not escaped
here: templates and scripts insert them as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import NamedTuple

# The maximum length of a line that can be rewritten, in characters. A longer line counts as ended.
LONGEST_LINE = 1024
_LONGEST_SEQUENCE = 256
_CONTROL = re.compile(
    r"\x1b\[(?P<values>[0-?]{0,64})[ -/]{0,8}(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,256}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]{0,8}[0-OQ-WYZ\\`-~]"
    r"|(?P<move>[\r\b])"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
# An incomplete control sequence at the end of a text.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b]{0,256}\x1b?|[ -/]{0,8})\Z")
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "gray")
_GRAY = 8
# Typical RGB values of _COLORS in terminals.
_RGB = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    (127, 127, 127),
)
_LEVELS = (0, 95, 135, 175, 215, 255)
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}


def without_controls(text: str) -> str:
    """The text without control sequences; carriage returns and backspaces stay."""
    return _CONTROL.sub(lambda found: found["move"] or "", text) if "\x1b" in text else text


class Run(NamedTuple):
    """Text of one style. A style is class names separated by spaces, "" for none."""

    style: str
    text: str


class Screen:
    """The screen of one writer, which gets text in pieces."""

    def __init__(self) -> None:
        # The unfinished line, the style of each of its characters, and the column of the cursor.
        self._chars: list[str] = []
        self._styles: list[str] = []
        self._column = 0
        self._look = _Look()
        self._rest = ""

    def feed(self, text: str) -> list[Run]:
        """Add text, and return the lines that have ended."""
        text = self._rest + text
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        end = unfinished.start() if unfinished else len(text)
        self._rest = text[end:]
        done: list[Run] = []
        at = 0
        for found in _CONTROL.finditer(text, 0, end):
            self._write(text[at : found.start()], done)
            at = found.end()
            if found["move"]:
                self._column = 0 if found["move"] == "\r" else max(0, self._column - 1)
            elif found["final"]:
                self._control(found["final"], found["values"])
        self._write(text[at:end], done)
        return done

    def line(self) -> list[Run]:
        """The unfinished line."""
        styled = groupby(zip(self._styles, self._chars), key=itemgetter(0))
        return [Run(style, "".join(char for _, char in run)) for style, run in styled]

    @property
    def has_line(self) -> bool:
        return bool(self._chars)

    @property
    def is_blank(self) -> bool:
        """True if a new screen would show later text in the same way."""
        return not (self._chars or self._rest or self._look.style)

    def _write(self, text: str, done: list[Run]) -> None:
        if "\n" in text:
            first, _, rest = text.partition("\n")
            self._put(first)
            done += [*self.line(), Run("", "\n")]
            self._clear()
            ended, newline, text = rest.rpartition("\n")
            if newline:
                done.append(Run(self._look.style, ended + newline))
        self._put(text)
        if len(self._chars) > LONGEST_LINE:
            done += self.line()
            self._clear()

    def _put(self, text: str) -> None:
        end = self._column + len(text)
        self._chars[self._column : end] = text
        self._styles[self._column : end] = repeat(self._look.style, len(text))
        self._column = end

    def _clear(self) -> None:
        self._chars, self._styles, self._column = [], [], 0

    def _control(self, final: str, values: str) -> None:
        if final == "m":
            self._look.change(values)
        elif final == "K":
            self._erase(values)
        elif final == "G":
            # Columns count from 1.
            self._column = min(max(1, _number(values, 1)) - 1, len(self._chars))
        elif final == "D":
            self._column = max(0, self._column - max(1, _number(values, 1)))
        elif final == "C":
            self._column = min(len(self._chars), self._column + max(1, _number(values, 1)))

    def _erase(self, values: str) -> None:
        """Erase from the cursor to the end of the line, from its start to the cursor, or all of it."""
        mode = _number(values, 0)
        if mode in (1, 2):
            self._chars[: self._column] = repeat(" ", self._column)
            self._styles[: self._column] = repeat("", self._column)
        if mode in (0, 2):
            del self._chars[self._column :], self._styles[self._column :]


class _Look:
    """The style that SGR has set."""

    def __init__(self) -> None:
        self._flags: set[str] = set()
        self._text: int | None = None
        self._ground: int | None = None
        self.style = ""

    def change(self, values: str) -> None:
        # Parameters are separated by semicolons, and the parts of one parameter by colons.
        numbers = iter([_number(one, 0) for one in re.split("[;:]", values)])
        for number in numbers:
            if number == 0:
                self._flags.clear()
                self._text = self._ground = None
            elif number in _FLAGS:
                self._flags.add(_FLAGS[number])
            elif number in _OFF:
                self._flags.difference_update(_OFF[number])
            elif number in (38, 48):
                color = _color(numbers)
                self._text, self._ground = (color, self._ground) if number == 38 else (self._text, color)
            elif 30 <= number <= 37 or number == 39 or 90 <= number <= 97:
                self._text = _plain(number)
            elif 40 <= number <= 47 or number == 49 or 100 <= number <= 107:
                self._ground = _plain(number - 10)
        self.style = " ".join(self._classes())

    def _classes(self) -> Iterable[str]:
        text, ground = self._text, self._ground
        flags = self._flags
        if "inverse" in flags and (text is not None or ground is not None):
            text, ground, flags = ground, text, flags - {"inverse"}
        if text is not None:
            yield _COLORS[text]
        if ground is not None:
            yield f"on-{_COLORS[ground]}"
        yield from sorted(flags)


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else default


def _plain(number: int) -> int | None:
    """The colour of 30 to 37, 39 and 90 to 97. Bright colours are shown as normal, bright black as gray."""
    if number == 39:
        return None
    return _GRAY if number == 90 else number % 10


def _color(numbers: Iterable[int]) -> int | None:
    """The nearest colour to the 256-colour index or RGB value in the next numbers."""
    kind, *_ = [*islice(numbers, 1), 0]
    if kind == 5:
        (number,) = [*islice(numbers, 1)] or [0]
        if number < 16:
            return _GRAY if number == 8 else number % 8
        if number >= 232:
            level = 8 + 10 * (number - 232)
            return _nearest((level, level, level))
        number -= 16
        return _nearest((_LEVELS[number // 36 % 6], _LEVELS[number // 6 % 6], _LEVELS[number % 6]))
    if kind == 2:
        rgb = [*islice(numbers, 3)]
        return _nearest((rgb[0], rgb[1], rgb[2])) if len(rgb) == 3 else None
    return None


def _nearest(rgb: tuple[int, int, int]) -> int:
    def distance(index: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(rgb, _RGB[index]))

    return min(range(len(_RGB)), key=distance)
