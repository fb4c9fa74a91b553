"""`flux.util`: durations (RFC 23), dates as users write them, and tables by format strings.

Formats and dates are those of Headrace's commands, so a program's `-o` and `--since` accept the same values as those of
`flux jobs`.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from functools import reduce, total_ordering
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from flux._program import CLIMain, help_formatter
from flux._tree import Tree
from headrace.formats.spec import archive, duration
from headrace.wire.query import color, when
from headrace.wire.query.format import IN_USER_FORMAT, Field, Format, FormatError, split_sort

__all__ = [
    "CLIMain",
    "ColorAction",
    "DisplayValue",
    "Fileref",
    "OutputFormat",
    "Tree",
    "UtilDatetime",
    "del_treedict",
    "fsd",
    "get_treedict",
    "help_formatter",
    "parse_datetime",
    "parse_fsd",
    "set_treedict",
]


def parse_fsd(fsd_string: str) -> float:
    """The seconds of a Flux standard duration. Raises ValueError."""
    try:
        return duration.parse(fsd_string)
    except ValueError as exc:
        # Services show the text to users with the name of the exception's class.
        raise ValueError(f"invalid Flux standard duration: {exc}") from None


def fsd(secs: float) -> str:
    return duration.encode(secs)


def parse_datetime(string: str, now: Optional[datetime] = None, assumeFuture: bool = True) -> datetime:
    """The local time of a text: `+1h`, `tomorrow noon`, `2026-11-21 08:00`. Raises ValueError.

    It is relative to `now`; with `assumeFuture`, a time of day or a weekday is the next one, otherwise the last.
    """
    now = datetime.now() if now is None else now
    if string.strip().lower() == "now":
        return now
    return datetime.fromtimestamp(when.parse(string, now.timestamp(), assumeFuture))


class UtilDatetime(datetime):
    """A time with the format specification `STRFTIME::COLUMN`; a final `h` shows the epoch as `-`."""

    def __format__(self, spec: str) -> str:
        clock, _, column = spec.partition("::")
        text = self.strftime(clock or "%Y-%m-%dT%H:%M:%S") if self.timestamp() else ""
        if column.endswith("h"):
            text, column = text or "-", column[:-1]
        return format(text, column)


class OutputFormat:
    """A table of objects by a format string of `flux jobs -o`.

    Fields are attributes; dots separate nested attributes. It may begin with `sort:KEY,... `. Raises ValueError for an
    invalid format, or for a field without a heading.
    """

    headings: Mapping[str, str] = {}

    def __init__(self, fmt: str, headings: Optional[Mapping[str, str]] = None, prepend: str = "0.") -> None:
        self.fmt = fmt
        self.headings = self.headings if headings is None else headings
        self._prepend = prepend
        text, keys = split_sort(fmt)
        try:
            self._format = Format(text, self.headings)
        except FormatError as exc:
            # Services show the text to users with the name of the exception's class.
            raise ValueError(str(exc).replace(IN_USER_FORMAT, "", 1)) from None
        self._sort_keys: List[str] = []
        self.set_sort_keys(keys)

    def copy(self, except_fields: Iterable[str] = (), nullify_expansion: bool = False) -> OutputFormat:
        """A copy without some fields; `nullify_expansion` makes `+:` columns as wide as their contents."""
        other = OutputFormat(self.fmt, self.headings, self._prepend)
        other._sort_keys = self._sort_keys
        left_out = set(except_fields)
        other._format.fields = [field for field in other._format.fields if field.name not in left_out]
        for field in other._format.fields:
            if nullify_expansion and field.widen:
                field.widen, field.spec = False, ""
        return other

    @property
    def fields(self) -> List[str]:
        return self._format.names

    def get_format(self, include_sort_prefix: bool = True) -> str:
        """The format for `str.format(object)`; with `prepend`, for an object with that name."""
        return self._prefix(include_sort_prefix) + self._text(lambda field: (self._prepend + field.name, field.suffix))

    def get_format_prepended(self, prepend: str, include_sort_prefix: bool = True) -> str:
        """The original format, including `?:` and `+:`, with `prepend` before each name."""
        return self._prefix(include_sort_prefix) + self._text(
            lambda field: (prepend + field.name, field.suffix),
            lambda field: ("?" * field.drop_empty + "+" * field.widen + ":").lstrip(":"),
        )

    def header_format(self) -> str:
        return self._text(lambda field: (field.name, f":{field.heading_spec}" if field.heading_spec else ""))

    def header(self) -> str:
        return self._format.header()

    def format(self, obj: Any) -> str:
        return self._format.row(_getter(obj))

    def set_sort_keys(self, sort_keys: str) -> None:
        """Sort by `KEY,...` (`-KEY`: descending) instead of the format's keys.

        Raises ValueError for an unknown key.
        """
        keys = [key for key in sort_keys.split(",") if key]
        for key in keys:
            if key.lstrip("-") not in self.headings:
                raise ValueError(f"Invalid sort key: {key.lstrip('-')}")
        self._sort_keys = keys

    def sort_items(self, items: List[Any]) -> List[Any]:
        """Sort a list in place and return it; the first key is the most significant."""
        for key in reversed(self._sort_keys):
            name = key.lstrip("-")
            items.sort(key=lambda item: DisplayValue(_getter(item)(name)), reverse=key[0] == "-")
        return items

    def filter(self, items: Iterable[Any], no_header: bool = False) -> str:
        """The format fitted to the items.

        It lacks `?:` columns that are empty in all items, and its `+:` columns are as wide as their contents.
        """
        fitted = self.copy()
        fitted._format.fit([_getter(item) for item in items], header=not no_header)
        return fitted._text(lambda field: (field.name, field.suffix))

    def print_items(self, items: Iterable[Any], no_header: bool = False) -> None:
        items = list(items)
        self.sort_items(items)
        fitted = OutputFormat(self.filter(items, no_header), self.headings)
        if not no_header:
            print(fitted.header())
        for item in items:
            print(fitted.format(item))

    def _prefix(self, wanted: bool) -> str:
        return f"sort:{','.join(self._sort_keys)} " if wanted and self._sort_keys else ""

    def _text(self, show: Callable[[Field], Tuple[str, str]], rules: Callable[[Field], str] = lambda _field: "") -> str:
        shown = [(field.literal + rules(field), *show(field)) for field in self._format.fields]
        return "".join(f"{literal}{{{name}{spec}}}" for literal, name, spec in shown) + self._format.tail


@total_ordering
class DisplayValue:
    """A value of a table as a sort key.

    Unset values (None, "" or "-") come first, then numbers and texts of numbers, then other texts.
    """

    EMPTY, NUMERIC, STRING = range(3)
    __slots__ = ("_sort_value", "_type_order", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._type_order, self._sort_value = self._order(value)

    def _order(self, value: Any) -> Tuple[int, Any]:
        if value is None or (isinstance(value, str) and value in ("", "-")):
            return self.EMPTY, 0
        for convert in (float, lambda other: float(str(other))):
            try:
                return self.NUMERIC, convert(value)
            except (TypeError, ValueError):
                pass
        return self.STRING, str(value)

    def _key(self) -> Tuple[int, Any]:
        return self._type_order, self._sort_value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisplayValue) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: DisplayValue) -> bool:
        return self._key() < other._key()

    def __repr__(self) -> str:
        return f"DisplayValue({self.value!r}, type_order={self._type_order}, sort_value={self._sort_value!r})"


def _getter(obj: Any) -> Callable[[str], Any]:
    return lambda name: reduce(getattr, name.split("."), obj)


def set_treedict(in_dict: Dict[str, Any], key: str, val: Any) -> None:
    """Set a value by dotted key, making dicts on its path."""
    *path, last = key.split(".")
    for part in path:
        in_dict = in_dict.setdefault(part, {})
    in_dict[last] = val


def get_treedict(in_dict: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The value of a dotted key; `default` if there is none."""
    for part in key.split("."):
        if not isinstance(in_dict, Mapping) or part not in in_dict:
            return default
        in_dict = in_dict[part]
    return in_dict


def del_treedict(in_dict: Dict[str, Any], key: str, remove_empty: bool = False) -> None:
    """Delete a value by dotted key, and with `remove_empty` also dicts that become empty.

    Raises KeyError if there is no such value.
    """
    first, _, rest = key.partition(".")
    if not rest:
        del in_dict[first]
        return
    below = in_dict[first]
    del_treedict(below, rest, remove_empty)
    if remove_empty and not below:
        del in_dict[first]


class ColorWhen(str):
    """When to use color: `always`, `never` or `auto`. `enabled` is the decision for the current stdout."""

    @property
    def enabled(self) -> bool:
        return color.stdout_colored(self)


class ColorAction(argparse.Action):
    """The action of an option `--color[=WHEN]`, whose value is a `ColorWhen`.

    It is `always` without WHEN, and `never` if NO_COLOR is set and the option is not given.
    """

    def __init__(self, option_strings: List[str], dest: str, **kwargs: Any) -> None:
        kwargs["default"] = ColorWhen("never" if color.unwanted() else "auto")
        kwargs.setdefault("help", "Colorize output: always, never or auto (default)")
        super().__init__(option_strings, dest, nargs="?", const="always", choices=color.WHEN, **kwargs)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Optional[str] = None) -> None:
        setattr(namespace, self.dest, ColorWhen(values))


class Fileref(Dict[str, Any]):
    """A file for a jobspec (RFC 37).

    It is made from a mapping, from text with an `encoding` (utf-8 or base64), or from the file at a path. Raises
    ValueError for another encoding, OSError.
    """

    def __init__(
        self, data: Union[str, Mapping[str, Any]], perms: Optional[int] = None, encoding: Optional[str] = None
    ) -> None:
        if isinstance(data, str) and encoding is None:
            entry = archive.entry_from_path(data)
            super().__init__({key: entry[key] for key in ("mode", "size", "encoding", "data") if key in entry})
            if perms is not None:
                self["mode"] = (self["mode"] & ~0o7777) | perms
            return
        if encoding not in (None, "utf-8", "base64"):
            raise ValueError(f"invalid encoding {encoding!r}: utf-8 and base64 are known")
        content = data if isinstance(data, str) else dict(data)
        super().__init__(archive.entry(content, 0o600 if perms is None else perms))
        if encoding is not None:
            self["encoding"] = encoding
