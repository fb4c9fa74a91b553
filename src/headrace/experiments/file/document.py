"""A YAML document as values that know their line and their key, for errors that name both.

Scalars follow the core schema of YAML 1.2 (section 10.3.2), so `on`, `no` and `1:30` are text. Anchors, aliases and
merge keys are resolved here. Duplicate keys, keys that are no text, tags and recursive aliases are errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Union

import yaml
from msgspec import Struct

from headrace.minicluster.api.documents import Parser

from .problems import InvalidExperiment, Problem

# Maximum number of characters of a file.
LARGEST = 1_000_000
# Maximum number of values, with those that aliases repeat; a few nested aliases could stand for billions.
MOST_VALUES = 100_000
# Maximum depth of mappings and lists in each other.
DEEPEST = 50
# Maximum number of bits of a whole number: SQLite and JSON readers keep no more.
_LARGEST_NUMBER = 63

_TAG = "tag:yaml.org,2002:"


class _Loader(Parser):
    """Resolves plain scalars by the core schema of YAML 1.2, where PyYAML has YAML 1.1."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)

Scalar = Union[None, bool, int, float, str]


class Value(Struct, frozen=True):
    """A value of a document: its line (from 1), its key (`jobs.lmp.command`, "" for the document), and the data.

    The data is a scalar, a list of Values, or a dict of Values by key. `begins` is the line at which a block of text
    (`|`) begins, 0 for all other data.
    """

    data: Any
    line: int
    key: str
    begins: int = 0

    def moved(self, line: int, key: str) -> Value:
        """This value, read from another file, as if it stood at `line` and `key`."""
        if isinstance(self.data, dict):
            return Value({name: one.moved(line, f"{key}.{name}") for name, one in self.data.items()}, line, key)
        if isinstance(self.data, list):
            return Value([one.moved(line, f"{key}[{at}]") for at, one in enumerate(self.data)], line, key)
        return Value(self.data, line, key)

    def plain(self) -> Any:
        """The data without lines, as JSON would have it."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data

    def scalars(self) -> Iterator[Value]:
        """All scalars in this value."""
        if isinstance(self.data, (dict, list)):
            for value in self.data.values() if isinstance(self.data, dict) else self.data:
                yield from value.scalars()
        else:
            yield self

    def find(self, path: str) -> Value:
        """The value at a path below this one (`pod.labels`, `rules[0]`), or the nearest value around it."""
        found = self
        for name, at in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            data = found.data
            if name and isinstance(data, dict) and name in data:
                found = data[name]
            elif at and isinstance(data, list) and int(at) < len(data):
                found = data[int(at)]
            else:
                break
        return found


def parse(text: str) -> Value:
    """The only document of a text. Raises InvalidExperiment."""
    if len(text) > LARGEST:
        raise InvalidExperiment([Problem(0, "", f"larger than {LARGEST // 1_000_000} MB")])
    if "\0" in text:
        raise InvalidExperiment([Problem(_line_at(text, text.index("\0")), "", "a NUL byte: this is not a text file")])
    try:
        nodes = list(_nodes(text))
        if len(nodes) > 1:
            line = nodes[1].start_mark.line + 1
            raise InvalidExperiment([Problem(line, "", "a second document: a file describes one experiment")])
        if not nodes:
            raise InvalidExperiment([Problem(0, "", "the file is empty: `headrace experiment init` writes one")])
        return _Converter().value(nodes[0], "", 0)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        what = " ".join(part for part in (exc.problem, exc.context) if part)
        raise InvalidExperiment([Problem(mark.line + 1 if mark else 0, "", f"not YAML: {what}")]) from None
    except yaml.reader.ReaderError as exc:
        line = _line_at(text, exc.position)
        raise InvalidExperiment([Problem(line, "", f"not YAML: character {exc.character!r}: {exc.reason}")]) from None
    except RecursionError:
        raise InvalidExperiment([Problem(0, "", "not YAML: nested too deeply")]) from None


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _nodes(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    while loader.check_node():
        yield loader.get_node()


class _Converter:
    """Makes Values of nodes, and counts them, because an alias repeats all values of its anchor."""

    def __init__(self) -> None:
        self._count = 0

    def value(self, node: yaml.Node, key: str, depth: int) -> Value:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MOST_VALUES:
            raise _wrong(node, key, f"more than {MOST_VALUES:,} values, with those that aliases (*NAME) repeat")
        if depth > DEEPEST:
            raise _wrong(node, key, f"nested more than {DEEPEST} levels deep, or an alias that contains itself")
        if isinstance(node, yaml.MappingNode):
            _check_tag(node, key, "map")
            return Value(self._mapping(node, key, depth), line, key)
        if isinstance(node, yaml.SequenceNode):
            _check_tag(node, key, "seq")
            items = [self.value(item, f"{key}[{at}]", depth + 1) for at, item in enumerate(node.value)]
            return Value(items, line, key)
        is_block = isinstance(node, yaml.ScalarNode) and node.style == "|"
        return Value(_scalar(node, key), line, key, line + 1 if is_block else 0)

    def _mapping(self, node: yaml.MappingNode, key: str, depth: int) -> dict[str, Value]:
        own: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for name_node, value_node in node.value:
            if name_node.tag == _TAG + "merge":
                for name, value in self._merged(value_node, key, depth):
                    merged.setdefault(name, value)
                continue
            name = _name(name_node, key)
            if name in own:
                raise _wrong(name_node, _below(key, name), f"is given twice, first in line {own[name].line}")
            value = self.value(value_node, _below(key, name), depth + 1)
            # The line of a key is that of its name; a block of text begins a line later.
            own[name] = Value(value.data, name_node.start_mark.line + 1, value.key, value.begins)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, key: str, depth: int) -> Iterator[tuple[str, Value]]:
        """The values of a merge key (`<<`): those of one mapping, or of several, of which the first has precedence."""
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.MappingNode):
                raise _wrong(one, _below(key, "<<"), "must be a mapping, or a list of mappings")
            yield from self.value(one, key, depth + 1).data.items()


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _wrong(node: yaml.Node, key: str, rule: str) -> InvalidExperiment:
    return InvalidExperiment([Problem(node.start_mark.line + 1, key, rule)])


def _check_tag(node: yaml.Node, key: str, kind: str) -> None:
    if node.tag != _TAG + kind:
        raise _wrong(node, key, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed")


def _name(node: yaml.Node, key: str) -> str:
    """The text of a key. Numbers and the like are refused: `1.0` and `1` would be the same key to some readers."""
    if not isinstance(node, yaml.ScalarNode):
        raise _wrong(node, key, 'a key is a list or a mapping: put a text that begins with "{{" or "[" in quotes')
    name = _scalar(node, key)
    if not isinstance(name, str) or not name:
        raise _wrong(node, key, f'the key "{node.value}" is not text' + (": put it in quotes" if node.value else ""))
    return name


def _scalar(node: yaml.Node, key: str) -> Scalar:
    kind, text = node.tag.removeprefix(_TAG), node.value
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return bool(text.lower() == "true")
        if kind == "int":
            # int() itself refuses more than 4,300 digits.
            number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 100 else 1 << _LARGEST_NUMBER
            if number.bit_length() > _LARGEST_NUMBER:
                raise _wrong(node, key, f"{text[:30]} is too large a number (put it in quotes if it is text)")
            return number
        if kind == "float":
            if not math.isfinite(real := float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))):
                raise _wrong(node, key, f"{text[:30]} is not a finite number (put it in quotes if it is text)")
            return real
    except ValueError as exc:
        if isinstance(exc, InvalidExperiment):
            raise
        raise _wrong(node, key, f"{text[:30]!r} is no {kind}") from None
    _check_tag(node, key, "str")
    if "\0" in text:
        raise _wrong(node, key, "must not contain the character NUL")
    return str(text)
