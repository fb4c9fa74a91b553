"""What programs take from `flux.util`: durations (RFC 23), dates as users write them, tables by format strings.

The formats and the dates are those of our own commands, so a program's `-o` and `--since` take what `flux jobs` takes.
"""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from headrace.cli import when
from headrace.cli.format import Field, Format
from headrace.spec import duration


def parse_fsd(text: str) -> float:
    """Seconds of a Flux standard duration; ValueError when it is none."""
    return duration.parse(text)


def fsd(seconds: float) -> str:
    return duration.encode(seconds)


def parse_datetime(string: str, now: Optional[datetime] = None, assumeFuture: bool = True) -> datetime:
    """The local time that `string` names: `+1h`, `tomorrow noon`, `2026-11-21 08:00`; ValueError when it is none.

    `now` is what it is relative to; with `assumeFuture` a time of day or a weekday is the next one, else the last.
    """
    now = datetime.now() if now is None else now
    if string.strip().lower() == "now":
        return now
    return datetime.fromtimestamp(when.parse(string, now.timestamp(), assumeFuture))


class UtilDatetime(datetime):
    """A time whose format specification is `STRFTIME::COLUMN`, where a last `h` in COLUMN shows the epoch as `-`."""

    def __format__(self, spec: str) -> str:
        clock, _, column = spec.partition("::")
        text = self.strftime(clock or "%Y-%m-%dT%H:%M:%S") if self.timestamp() else ""
        if column.endswith("h"):
            text, column = text or "-", column[:-1]
        return format(text, column)


class OutputFormat:
    """A table of objects by a format string as `flux jobs -o` takes it: its fields are attributes, with dots where an
    attribute has attributes. Raises ValueError for a format that cannot be used or a field without a heading."""

    headings: Mapping[str, str] = {}

    def __init__(self, fmt: str, headings: Optional[Mapping[str, str]] = None, prepend: str = "0.") -> None:
        self.fmt = fmt
        self.headings = self.headings if headings is None else headings
        self._prepend = prepend
        self._format = Format(fmt, self.headings)

    @property
    def fields(self) -> List[str]:
        return self._format.names

    def get_format(self) -> str:
        """The format for `str.format(object)`, or for what `prepend` begins its names with."""
        return self._text(lambda field: (self._prepend + field.name, field.whole))

    def header_format(self) -> str:
        return self._text(lambda field: (field.name, f":{field.heading_spec}" if field.heading_spec else ""))

    def header(self) -> str:
        return self._format.header()

    def format(self, obj: Any) -> str:
        return self._format.row(_getter(obj))

    def filter(self, items: Iterable[Any], no_header: bool = False) -> str:
        """The format without the `?:` columns that are empty in all items, its `+:` columns as wide as they are."""
        fitted = OutputFormat(self.fmt, self.headings, prepend="")
        fitted._format.fit([_getter(item) for item in items], header=not no_header)
        return fitted.get_format()

    def print_items(self, items: Iterable[Any], no_header: bool = False) -> None:
        items = list(items)
        fitted = OutputFormat(self.filter(items, no_header), self.headings)
        if not no_header:
            print(fitted.header())
        for item in items:
            print(fitted.format(item))

    def _text(self, show: Callable[[Field], Tuple[str, str]]) -> str:
        shown = [(field.literal, *show(field)) for field in self._format.fields]
        return "".join(f"{literal}{{{name}{spec}}}" for literal, name, spec in shown) + self._format.tail


def _getter(obj: Any) -> Callable[[str], Any]:
    return lambda name: reduce(getattr, name.split("."), obj)


def set_treedict(tree: Dict[str, Any], key: str, value: Any) -> None:
    """Set a value by its dotted key, making dicts on the way."""
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
    tree[last] = value


def get_treedict(tree: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The value of a dotted key, `default` where there is none."""
    for part in key.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return default
        tree = tree[part]
    return tree
