"""Flux's output format strings, for `flux jobs -o`, `flux resource list -o` and other commands.

A format is a Python format string with these additions:

- before a field, `?:` drops the column if it is empty in every row, `+:` widens it to its longest value;
- at the end of the specification, `h` shows an empty value as `-`, `+` marks a truncated value;
- the conversions are `!d` (time by strftime; `%b%d %R::>12` adds a width), `!D` (ISO time), `!F` (duration), `!H`
  (h:mm:ss) and `!P` (percent).

A row is a function `get(name)`, so this module is independent of jobs and resources.
"""

from __future__ import annotations

import time

from headrace.formats.spec import duration
from headrace.formats.spec.stdlib_parts import formatter_parser
from headrace.wire.query import QueryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, List, Mapping, Sequence, Tuple

    Getter = Callable[[str], Any]

# Values that count as empty: `h` shows them as a hyphen, and `?:` drops a column that has no other values.
_NOTHING = ("", "0s", "0.0", "0:00:00", "1970-01-01T00:00:00")
_NUMBER_TYPES = "bcdeEfFgGnoxX%"


# What commands say before the error of a user's format.
IN_USER_FORMAT = "Error in user format: "


class FormatError(QueryError):
    """An invalid format string; the text names the field or conversion, `known` lists the known fields."""

    def __init__(self, text: str, known: str = "") -> None:
        super().__init__(text)
        self.known = known


class Field:
    """A `{name!conversion:spec}` with the literal text before it and its column rules."""

    __slots__ = ("conversion", "drop_empty", "hyphen", "literal", "mark", "name", "spec", "strftime", "widen")

    def __init__(self, literal: str, name: str, spec: str, conversion: str) -> None:
        self.literal = literal
        self.name = name
        self.conversion = conversion
        self.drop_empty = self.widen = self.hyphen = self.mark = False
        if literal.endswith(":"):
            head = literal[:-1].rstrip("?+")
            rules = literal[len(head) : -1]
            if rules in ("?", "+", "?+", "+?"):
                self.literal = head
                self.drop_empty = "?" in rules
                self.widen = "+" in rules
        self.strftime = ""
        if conversion == "d":
            self.strftime, _, spec = spec.partition("::")
        while spec[-1:] in ("h", "+") and spec:
            self.hyphen = self.hyphen or spec[-1] == "h"
            self.mark = self.mark or spec[-1] == "+"
            spec = spec[:-1]
        self.spec = spec

    def text(self, value: Any) -> str:
        """The value as shown in the column, padded and truncated."""
        value = self._convert(value)
        spec = self.spec
        if self.hyphen and (
            value is None or str(value).strip() in _NOTHING or (isinstance(value, float) and value == 0)
        ):
            return format("-", _text_spec(spec, keep_precision=False))
        if self.mark:
            plain, limit = str(value), _precision(spec)
            if limit and len(plain) > limit:
                value = plain[: limit - 1] + "+"
        if spec[-1:] in _NUMBER_TYPES and spec and isinstance(value, str):
            try:
                value = float(value) if spec[-1] not in "bcdoxX" else int(value)
            except ValueError:
                return format(value, _text_spec(spec, keep_precision=False))
        if isinstance(value, (bool, dict, list, tuple)) or value is None:
            value = "" if value is None else str(value)
        try:
            return format(value, spec)
        except (ValueError, TypeError) as exc:
            if str(exc).startswith("Invalid format specifier"):
                raise FormatError(f"{IN_USER_FORMAT}{self.name}: Invalid format specifier '{spec}'") from None
            if isinstance(value, (int, float)) and spec:
                return format(str(value), _text_spec(spec, keep_precision=True))
            raise FormatError(f"{IN_USER_FORMAT}{self.name}: cannot use format '{spec}'") from None

    @property
    def suffix(self) -> str:
        """The conversion and the specification in the syntax of formats, including changes by `fit`."""
        conversion = f"!{self.conversion}" if self.conversion else ""
        spec = self.spec + "h" * self.hyphen + "+" * self.mark
        if self.strftime:
            spec = f"{self.strftime}::{spec}" if spec else self.strftime
        return f"{conversion}:{spec}" if spec else conversion

    @property
    def heading_spec(self) -> str:
        number = self.spec[-1:] in _NUMBER_TYPES and bool(self.spec)
        spec = _text_spec(self.spec, keep_precision=not number)
        # The heading does not have the fill character of the cells.
        return spec[1:] if spec[1:2] and spec[1] in "<>^" else spec

    def heading(self, text: str) -> str:
        """The column's heading."""
        return format(text, self.heading_spec)

    def _convert(self, value: Any) -> Any:
        kind = self.conversion
        if not kind or kind == "s":
            return value
        if kind == "r":
            return repr(value)
        if kind == "P":
            return _percent(value)
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            return ""
        try:
            return self._convert_seconds(kind, seconds)
        except (ValueError, OverflowError, OSError):
            # The value is out of range for a calendar or a clock. Show the number, so the other rows are shown as well.
            return f"{seconds:g}"

    def _convert_seconds(self, kind: str, seconds: float) -> str:
        if kind == "F":
            return "inf" if seconds == float("inf") else str(duration.encode(seconds))
        if kind == "H":
            # Rounded to seconds, but a positive duration is at least 1 s, so that it is not shown as 0:00:00.
            from datetime import timedelta

            return str(timedelta(seconds=max(round(seconds), 1) if seconds > 0 else round(seconds)))
        if kind == "D":
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds)) if seconds else ""
        if self.hyphen and not seconds:
            return ""
        return time.strftime(self.strftime or "%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


class Format:
    """A parsed format string.

    Raises FormatError if it is invalid or names a field that is not in `headings`. Names that begin with one of
    `open_prefixes` (annotations) are accepted without a heading.
    """

    __slots__ = ("_headings", "fields", "tail")

    def __init__(self, text: str, headings: Mapping[str, str], open_prefixes: Sequence[str] = ()) -> None:
        self._headings = headings
        self.fields: List[Field] = []
        self.tail = ""
        try:
            parsed = list(formatter_parser(text))
        except ValueError as exc:
            raise FormatError(f"{IN_USER_FORMAT}{exc}") from None
        for literal, name, spec, conversion in parsed:
            if name is None:
                self.tail += literal
                continue
            if name not in headings and not any(name.startswith(prefix) for prefix in open_prefixes):
                raise _unknown(name, headings)
            if conversion and conversion not in "srdDFHP":
                raise FormatError(f"{IN_USER_FORMAT}Unknown conversion: !{conversion}")
            self.fields.append(Field(literal, name, spec or "", conversion or ""))

    @property
    def names(self) -> List[str]:
        return [field.name for field in self.fields]

    def header(self) -> str:
        return self._line(lambda field: field.heading(self._headings.get(field.name, field.name.upper())))

    def row(self, get: Getter) -> str:
        return self._line(lambda field: field.text(get(field.name)))

    def fit(self, rows: Iterable[Getter], header: bool = True) -> None:
        """Apply the column rules `?:` and `+:` to the rows to be shown; `header`: whether a header is shown."""
        if not any(field.drop_empty or field.widen for field in self.fields):
            return
        rows = list(rows)
        kept: List[Field] = []
        for field in self.fields:
            if field.drop_empty and not any(field.text(get(field.name)).strip() not in _NOTHING for get in rows):
                continue
            if field.widen:
                self._widen(field, rows, header)
            kept.append(field)
        self.fields = kept

    def _widen(self, field: Field, rows: List[Getter], header: bool) -> None:
        fill, width, precision, kind = _split_spec(field.spec)
        heading = self._headings.get(field.name, field.name.upper())
        longest = max([width, len(heading)] if rows and header else [width])
        field.spec = ""
        mark, field.mark = field.mark, False
        for get in rows:
            longest = max(longest, len(field.text(get(field.name)).strip()))
        field.mark = mark
        # The precision of a number sets its digits and is kept. The precision of text only truncates it, so it grows.
        keep = (f".{precision}" if kind else f".{max(int(precision), longest)}") if precision else ""
        field.spec = f"{fill}{longest}{keep}{kind}"

    def _line(self, show: Callable[[Field], str]) -> str:
        return "".join([field.literal + show(field) for field in self.fields]) + self.tail


def split_sort(text: str) -> Tuple[str, str]:
    """Split a format that may begin with `sort:KEY,... ` into (format, sort keys)."""
    if not text.startswith("sort:"):
        return text, ""
    keys, _, rest = text[len("sort:") :].partition(" ")
    return rest.lstrip(), keys


def _unknown(name: str, headings: Iterable[str]) -> FormatError:
    """The error for a field without a heading, with a similar field as a suggestion."""
    import difflib

    known = [known for known in headings if known]
    similar = difflib.get_close_matches(name, known, 1)
    text = f"{IN_USER_FORMAT}Unknown format field: {name}"
    if similar:
        return FormatError(f"{text} (did you mean {similar[0]}? known are {', '.join(known)})")
    return FormatError(text, f" (known are {', '.join(known)})")


def _split_spec(spec: str) -> Any:
    """Split a format specification into (fill and alignment, width, precision or "", type)."""
    align = ""
    if len(spec) > 1 and spec[1] in "<>^=":
        align, spec = spec[:2], spec[2:]
    elif spec[:1] in ("<", ">", "^", "="):
        align, spec = spec[:1], spec[1:]
    kind = ""
    if (spec and spec[-1].isalpha()) or spec[-1:] == "%":
        kind, spec = spec[-1], spec[:-1]
    width, _, precision = spec.partition(".")
    digits = width.lstrip("+- #0,_")
    return align, int(digits) if digits.isdigit() else 0, precision, kind


def _precision(spec: str) -> int:
    precision = _split_spec(spec)[2]
    return int(precision) if precision.isdigit() else 0


def _text_spec(spec: str, keep_precision: bool) -> str:
    """The specification for text: without a number type, and without a precision unless it truncates text."""
    align, width, precision, kind = _split_spec(spec)
    if align[-1:] == "=":
        align = ">"
    cut = f".{precision}" if precision and keep_precision and kind in ("", "s") else ""
    return f"{align}{width or ''}{cut}"


def _percent(value: Any) -> str:
    """A fraction as a percentage of at most five characters: 50%, 1.5%, 0.05%."""
    try:
        percent = float(value) * 100
    except (TypeError, ValueError):
        return ""
    if 0 < percent < 1:
        return f"{percent:.2f}%"
    if percent < 10 and percent != int(percent):
        return f"{percent:.1f}%"
    return f"{percent:.0f}%"
