"""Reads the fields of a parsed YAML document, and collects their problems, each with its path."""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.problems import Problem
from headrace.minicluster.api.fields import InvalidMiniCluster

INT32 = 2**31


class InvalidForeign(InvalidMiniCluster):
    """The object cannot become a cluster; `problems` has all reasons, each with its path in the document."""


def kind_of(value: Any) -> str:
    """The type of a value in the terms of YAML, with the value itself if it is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    shown = repr(value) if isinstance(value, str) else written(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def written(value: Any) -> str:
    """A scalar as text.

    A very large integer, which Python may refuse to convert to decimals, is hexadecimal.
    """
    return hex(value) if isinstance(value, int) and value.bit_length() > 128 else str(value)


class Field:
    """A place in a document.

    A value that is missing, null or of the wrong type is read as the default. A wrong type is also a problem. All
    fields of a document share one list of problems.
    """

    def __init__(self, value: Any, path: str = "", problems: list[Problem] | None = None) -> None:
        self.value = value
        self.path = path
        self.problems: list[Problem] = [] if problems is None else problems

    @property
    def given(self) -> bool:
        return self.value is not None

    def __getitem__(self, key: str) -> Field:
        """The member `key` of a mapping."""
        return self._below(self.mapping().get(key), f"{self.path}.{key}" if self.path else key)

    def below(self, key: str) -> Field:
        """A place below this one that the document itself lacks, such as a key in an annotation's text."""
        return self._below(None, f"{self.path}.{key}")

    def items(self) -> list[Field]:
        """The items of a list."""
        found = self._typed(list, "a list", [])
        return [self._below(item, f"{self.path}[{index}]") for index, item in enumerate(found)]

    def mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = self._typed(dict, "a mapping", {})
        return found

    def text(self, default: str = "") -> str:
        found: str = self._typed(str, "text", default)
        try:
            found.encode()
        except UnicodeEncodeError:
            self.refuse("must be Unicode text, and has half of a surrogate pair")
            return default
        if "\0" in found:
            self.refuse("must not contain the character NUL")
            return default
        return found

    def texts(self) -> tuple[str, ...]:
        return tuple(item.required_text() for item in self.items())

    def required_text(self) -> str:
        if not self.given:
            self.refuse("is required and must be text")
        return self.text()

    def flag(self, default: bool = False) -> bool:
        found: bool = self._typed(bool, "true or false", default)
        return found

    def number(self, default: int, least: int = -INT32, most: int = INT32 - 1) -> int:
        """A whole number from `least` to `most`."""
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"must be a whole number, not {kind_of(self.value)}")
            return default
        if self.value < least:
            self.refuse(f"must be {least} or more, not {kind_of(self.value)}")
            return default
        if self.value > most:
            self.refuse(f"must be {most} or less, not {kind_of(self.value)}")
            return default
        return self.value

    def choice(self, choices: tuple[str, ...], default: str) -> str:
        found = self.text(default)
        if found not in choices:
            self.refuse(f"must be {'one of ' if choices[1:] else ''}{', '.join(choices)}, not {found!r}")
            return default
        return found

    def members_but(self, placed: tuple[str, ...]) -> list[str]:
        """The paths of members that are given and not empty, except those in `placed`."""
        given = (key for key, value in self.mapping().items() if value not in (None, {}, []))
        return [self[key].path for key in given if key not in placed]

    def refuse(self, rule: str) -> None:
        problem = Problem(self.path, rule)
        if problem not in self.problems:
            self.problems.append(problem)

    def end(self) -> None:
        """Raise InvalidForeign if there are problems."""
        if self.problems:
            raise InvalidForeign(self.problems)

    def _below(self, value: Any, path: str) -> Field:
        return Field(value, path, self.problems)

    def _typed(self, wanted: type, name: str, default: Any) -> Any:
        if self.value is None:
            return default
        if not isinstance(self.value, wanted):
            self.refuse(f"must be {name}, not {kind_of(self.value)}")
            return default
        return self.value
