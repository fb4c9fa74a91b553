"""Flux's output format strings, as `flux jobs -o`, `flux resource list -o` and `flux queue list -o` take them.

A format is a Python format string with additions: before a field `?:` drops the column when it is empty in every
row and `+:` widens it to its longest value; in the specification a last `h` shows nothing as `-` and a last `+`
marks truncation; the conversions are `!d` (time by strftime, `%b%d %R::>12` adds a width), `!D` (ISO time),
`!F` (duration), `!H` (h:mm:ss) and `!P` (percent). Rows are values behind a `get(name)`, so nothing here knows of
jobs or resources.
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

# What `h` shows as a hyphen and what lets a `?:` column vanish.
_NOTHING = ("", "0s", "0.0", "0:00:00", "1970-01-01T00:00:00")
_NUMBER_TYPES = "bcdeEfFgGnoxX%"


class FormatError(QueryError):
    """A format string that cannot be used; the text names the field or the conversion, `known` the fields there are."""

    def __init__(self, text: str, known: str = "") -> None:
        super().__init__(text)
        self.known = known


class Field:
    """One `{name!conversion:spec}` with the literal text before it and its column rules."""

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
        """The value as it stands in the column, padded and cut."""
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
                raise FormatError(f"Error in user format: {self.name}: Invalid format specifier '{spec}'") from None
            if isinstance(value, (int, float)) and spec:
                return format(str(value), _text_spec(spec, keep_precision=True))
            raise FormatError(f"Error in user format: {self.name}: cannot use format '{spec}'") from None

    @property
    def suffix(self) -> str:
        """Conversion and specification as a format has them, with what `fit` made of them."""
        conversion = f"!{self.conversion}" if self.conversion else ""
        spec = self.spec + "h" * self.hyphen + "+" * self.mark
        if self.strftime:
            spec = f"{self.strftime}::{spec}" if spec else self.strftime
        return f"{conversion}:{spec}" if spec else conversion

    @property
    def heading_spec(self) -> str:
        number = self.spec[-1:] in _NUMBER_TYPES and bool(self.spec)
        spec = _text_spec(self.spec, keep_precision=not number)
        # What fills the cells is not for the heading.
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
            # No calendar or clock has this: the number alone, so that one row does not take the table with it.
            return f"{seconds:g}"

    def _convert_seconds(self, kind: str, seconds: float) -> str:
        if kind == "F":
            return "inf" if seconds == float("inf") else str(duration.encode(seconds))
        if kind == "H":
            # As a clock that has seconds has it, but what took any time at all is not shown as none.
            from datetime import timedelta

            return str(timedelta(seconds=max(round(seconds), 1) if seconds > 0 else round(seconds)))
        if kind == "D":
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds)) if seconds else ""
        if self.hyphen and not seconds:
            return ""
        return time.strftime(self.strftime or "%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


class Format:
    """A parsed format string. Raises FormatError when it cannot be read or names a field that `headings` lacks.

    `open_prefixes` are beginnings of names that are accepted though no heading is known (annotations).
    """

    __slots__ = ("_headings", "fields", "tail")

    def __init__(self, text: str, headings: Mapping[str, str], open_prefixes: Sequence[str] = ()) -> None:
        self._headings = headings
        self.fields: List[Field] = []
        self.tail = ""
        try:
            parsed = list(formatter_parser(text))
        except ValueError as exc:
            raise FormatError(f"Error in user format: {exc}") from None
        for literal, name, spec, conversion in parsed:
            if name is None:
                self.tail += literal
                continue
            if name not in headings and not any(name.startswith(prefix) for prefix in open_prefixes):
                raise _unknown(name, headings)
            if conversion and conversion not in "srdDFHP":
                raise FormatError(f"Error in user format: Unknown conversion: !{conversion}")
            self.fields.append(Field(literal, name, spec or "", conversion or ""))

    @property
    def names(self) -> List[str]:
        return [field.name for field in self.fields]

    def header(self) -> str:
        return self._line(lambda field: field.heading(self._headings.get(field.name, field.name.upper())))

    def row(self, get: Getter) -> str:
        return self._line(lambda field: field.text(get(field.name)))

    def fit(self, rows: Iterable[Getter], header: bool = True) -> None:
        """Apply the column rules `?:` and `+:` to the rows that are going to be shown, under a header or not."""
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
        # The precision of a number is what is shown of it, that of a text only cuts what does not fit.
        keep = (f".{precision}" if kind else f".{max(int(precision), longest)}") if precision else ""
        field.spec = f"{fill}{longest}{keep}{kind}"

    def _line(self, show: Callable[[Field], str]) -> str:
        return "".join([field.literal + show(field) for field in self.fields]) + self.tail


def split_sort(text: str) -> Tuple[str, str]:
    """(format, sort keys) of a format that may begin with `sort:KEY,... `."""
    if not text.startswith("sort:"):
        return text, ""
    keys, _, rest = text[len("sort:") :].partition(" ")
    return rest.lstrip(), keys


def _unknown(name: str, headings: Iterable[str]) -> FormatError:
    """The error for a field without a heading, with a similar one that may be meant."""
    import difflib

    known = [known for known in headings if known]
    similar = difflib.get_close_matches(name, known, 1)
    text = f"Error in user format: Unknown format field: {name}"
    if similar:
        return FormatError(f"{text} (did you mean {similar[0]}? known are {', '.join(known)})")
    return FormatError(text, f" (known are {', '.join(known)})")


def _split_spec(spec: str) -> Any:
    """(fill and alignment, width, precision or "", type) of a format specification."""
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
    """The specification as it applies to text: no number type, and no precision unless it cuts text."""
    align, width, precision, kind = _split_spec(spec)
    if align[-1:] == "=":
        align = ">"
    cut = f".{precision}" if precision and keep_precision and kind in ("", "s") else ""
    return f"{align}{width or ''}{cut}"


def _percent(value: Any) -> str:
    """A share as a percentage that fits five characters: 50%, 1.5%, 0.05%."""
    try:
        percent = float(value) * 100
    except (TypeError, ValueError):
        return ""
    if 0 < percent < 1:
        return f"{percent:.2f}%"
    if percent < 10 and percent != int(percent):
        return f"{percent:.1f}%"
    return f"{percent:.0f}%"
