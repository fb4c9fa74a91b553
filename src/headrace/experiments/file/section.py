"""Reads the keys of a mapping by their types, and collects what is wrong, so that one reading reports all of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from headrace.formats.spec.duration import DurationError
from headrace.formats.spec.duration import parse as parse_duration

from .document import Value
from .problems import InvalidExperiment, Problem, unknown


class Findings:
    """What was found in the document `whole`: problems make it invalid, and notes are what its user should know."""

    def __init__(self, whole: Value) -> None:
        self.whole = whole
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []

    def wrong(self, value: Value, rule: str, key: str = "") -> None:
        self.problems.append(Problem(value.line, key or value.key, rule))

    def stop_if_wrong(self) -> None:
        """Raise InvalidExperiment if there are problems."""
        if self.problems:
            raise InvalidExperiment(self.problems)

    def note(self, value: Value, rule: str, key: str = "") -> None:
        self.notes.append(Problem(value.line, key or value.key, rule))


class Section:
    """A mapping of the file. A key that was never asked for is unknown; `close` reports those.

    Each method returns the default if the key is absent, null or wrong.
    """

    def __init__(self, value: Value | None, findings: Findings) -> None:
        self.value = value or Value({}, 0, "")
        self.findings = findings
        self._asked: set[str] = set()
        if not isinstance(self.value.data, dict):
            if self.value.data is not None:
                findings.wrong(self.value, f"must be a mapping, not {described(self.value)}")
            self.value = Value({}, self.value.line, self.value.key)

    @property
    def items(self) -> dict[str, Value]:
        found: dict[str, Value] = self.value.data
        return found

    def take(self, *names: str) -> Value | None:
        """The value of the first of these keys that is given; None if there is none, or if it is null."""
        self._asked.update(names)
        given = [self.items[name] for name in names if name in self.items]
        for other in given[1:]:
            self.findings.wrong(other, f"stands for the same as {given[0].key.rpartition('.')[2]}: give one of them")
        return given[0] if given and given[0].data is not None else None

    def text(self, name: str, default: str = "") -> str:
        return text_of(self.take(name), self.findings, default)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
        return tuple(text_of(item, self.findings) for item in items_of(self.take(name)))

    def flag(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value.data, bool):
            self.findings.wrong(value, f"must be true or false, not {described(value)}")
            return default
        return default if value is None else bool(value.data)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        value, known = self.take(name), list(choices)
        if value is None or value.data in known:
            return default if value is None else str(value.data)
        self.findings.wrong(value, f"{described(value)} {unknown('value', str(value.data), known)}")
        return default

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        value = self.take(name)
        return default if value is None else whole_of(value, self.findings, default, least, most)

    def amount(self, name: str) -> float | None:
        """A number of zero or more."""
        value = self.take(name)
        return None if value is None else amount_of(value, self.findings)

    def seconds(self, name: str) -> float:
        """A duration: a number of seconds, or a text such as 90s or 1.5h. 0 if it is absent."""
        value = self.take(name)
        if value is None:
            return 0.0
        try:
            found = parse_duration(str(value.data)) if _is_number(value.data) or isinstance(value.data, str) else 0.0
        except DurationError:
            found = 0.0
        if not 0 < found < math.inf:
            self.findings.wrong(value, f"{described(value)} is not a duration (try 90s, 30m or 2h)")
            return 0.0
        return found

    @property
    def asked(self) -> frozenset[str]:
        """The keys that were asked for."""
        return frozenset(self._asked)

    def close(self, kind: str = "key", elsewhere: Iterable[str] = ()) -> None:
        """Report the keys that were not asked for. Keys `elsewhere` are known in the jobs."""
        for name, value in self.items.items():
            if name in self._asked:
                continue
            is_near = name in elsewhere
            self.findings.wrong(value, "belongs into a job" if is_near else unknown(kind, name, self._asked))


def described(value: Value) -> str:
    """The data of a value for messages."""
    if isinstance(value.data, dict):
        return "a mapping"
    if isinstance(value.data, list):
        return "a list"
    if value.data is None:
        return "nothing"
    shown = str(value.data).lower() if isinstance(value.data, bool) else str(value.data)
    return f'"{shown[:60]}"' if isinstance(value.data, str) else shown


def items_of(value: Value | None) -> list[Value]:
    """The items of a list; anything else is a list of itself."""
    if value is None:
        return []
    return list(value.data) if isinstance(value.data, list) else [value]


def text_of(value: Value | None, findings: Findings, default: str = "") -> str:
    if value is None:
        return default
    if isinstance(value.data, str):
        return value.data
    hint = " (put it in quotes)" if _is_scalar(value.data) else ""
    findings.wrong(value, f"must be text, not {described(value)}{hint}")
    return default


def whole_of(value: Value, findings: Findings, default: int, least: int, most: int) -> int:
    if isinstance(value.data, int) and not isinstance(value.data, bool) and least <= value.data <= most:
        return value.data
    findings.wrong(value, f"must be a whole number from {least} to {most:,}, not {described(value)}")
    return default


def amount_of(value: Value, findings: Findings) -> float | None:
    if _is_number(value.data) and value.data >= 0:
        return float(value.data)
    findings.wrong(value, f"must be a number of 0 or more, not {described(value)}")
    return None


def scalar_of(value: Value, findings: Findings) -> str | int | float | bool:
    """A text, a number, true or false."""
    if _is_scalar(value.data):
        found: str | int | float | bool = value.data
        return found
    findings.wrong(value, f"must be text, a number, true or false, not {described(value)}")
    return ""


def _is_number(data: Any) -> bool:
    return isinstance(data, (int, float)) and not isinstance(data, bool)


def _is_scalar(data: Any) -> bool:
    return isinstance(data, (str, int, float))
