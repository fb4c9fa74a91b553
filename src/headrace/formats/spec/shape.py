"""Resource shapes (RFC 46): ``slot=4/node/[core=2;gpu]``, the short form of a jobspec's ``resources``."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple, Union

from headrace.formats.spec.idset import Idset

Vertex = Dict[str, Any]

_STRING = re.compile(r"[^\s\"\[\]{};:,=/]+")
_RANGE = re.compile(r"([0-9]+)(?:(\+)|-([0-9]+))?(?::([0-9]+)(?::([+*^]))?)?")
_COUNT = re.compile(r"\[([^\]]*)\]|[0-9+\-,:*^]+")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()

# Real machines have half a dozen levels; the limit keeps the recursion within Python's stack.
_MAX_DEPTH = 64


class ShapeError(ValueError):
    """An invalid shape; the message contains the position."""


def parse(text: str, default_label: str = "default") -> List[Vertex]:
    """Return the ``resources`` list (RFC 14) of a shape.

    If a shape has only one slot, the slot's label may be omitted and is ``default_label``. A range becomes a range
    object. An idset with several counts remains a string. Raises ShapeError.
    """
    parser = _Parser(text)
    resources = parser.vertices(0)
    parser.expect_end()
    unlabeled = [slot for slot in parser.slots if "label" not in slot]
    if unlabeled and len(parser.slots) > 1:
        raise ShapeError(f"shape '{text}': has {len(parser.slots)} slots, so each needs a label: slot{{label}}")
    for slot in unlabeled:
        children = slot.pop("with")
        slot["label"] = default_label
        slot["with"] = children
    return resources


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.slots: List[Vertex] = []

    def error(self, what: str) -> ShapeError:
        return ShapeError(f"shape '{self.text}': {what} at position {self.at}")

    def peek(self) -> str:
        space = _SPACE.match(self.text, self.at)
        if space:
            self.at = space.end()
        return self.text[self.at : self.at + 1]

    def accept(self, char: str) -> bool:
        if self.peek() == char:
            self.at += 1
            return True
        return False

    def expect(self, char: str) -> None:
        if not self.accept(char):
            raise self.error(f"expected '{char}', got {self.peek()!r}" if self.peek() else f"expected '{char}'")

    def expect_end(self) -> None:
        if self.peek():
            raise self.error(f"unexpected {self.peek()!r}")

    def vertices(self, depth: int) -> List[Vertex]:
        if depth > _MAX_DEPTH:
            raise self.error(f"nested deeper than {_MAX_DEPTH}")
        if not self.accept("["):
            return [self.vertex(depth)]
        found = [self.vertex(depth)]
        while self.accept(";"):
            found.append(self.vertex(depth))
        self.expect("]")
        return found

    def vertex(self, depth: int) -> Vertex:
        kind = self.string("a resource type")
        vertex: Vertex = {"type": kind, "count": 1}
        if self.accept("="):
            vertex["count"] = self.count()
        is_slot = kind == "slot"
        if is_slot:
            self.slots.append(vertex)
        if self.accept("{"):
            if is_slot:
                vertex["label"] = self.string("the label of the slot")
                if self.peek() != "}":
                    self.expect(",")
            self.items(vertex, depth)
        if self.accept("/"):
            vertex["with"] = self.vertices(depth + 1)
        elif is_slot:
            raise self.error("a slot needs resources after '/'")
        return vertex

    def count(self) -> Union[int, str, Dict[str, Any]]:
        self.peek()
        found = _COUNT.match(self.text, self.at)
        if found is None:
            raise self.error("expected a count")
        body = found.group(1) if found.group(1) is not None else found.group()
        count = _read_count(body)
        if count is None:
            raise self.error(f"'{body}' is not a count: use an integer of 1 or more, 2-8, 2+, 2-8:2:*, or 2,4,8")
        self.at = found.end()
        return count

    def items(self, into: Dict[str, Any], depth: int) -> None:
        """Read ``item,item...}`` into a dict."""
        if depth > _MAX_DEPTH:
            raise self.error(f"nested deeper than {_MAX_DEPTH}")
        while not self.accept("}"):
            start = self.at
            key, value = self.item(depth)
            if key == "x":
                key = "exclusive"
            if key in into:
                self.at = start
                raise self.error(f"'{key}' is given twice")
            into[key] = value
            if self.peek() != "}":
                self.expect(",")
                if self.peek() == "}":
                    raise self.error("expected a key")

    def item(self, depth: int) -> Tuple[str, Any]:
        sign = self.peek()
        if sign and sign in "+-":
            self.at += 1
            return self.string("a key"), sign == "+"
        key = self.string("a key")
        if not self.accept(":"):
            return key, True
        return key, self.value(depth)

    def value(self, depth: int) -> Any:
        char = self.peek()
        if char == "{":
            self.at += 1
            inner: Dict[str, Any] = {}
            self.items(inner, depth + 1)
            return inner
        if char in {"[", '"'}:
            try:
                value, self.at = _DECODER.raw_decode(self.text, self.at)
            except (ValueError, RecursionError):
                raise self.error("not a JSON value") from None
            return value
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.error("expected a value")
        self.at = found.end()
        try:
            return json.loads(found.group(), parse_constant=str)
        except ValueError:
            return found.group()

    def string(self, what: str) -> str:
        if self.peek() == '"':
            try:
                value, self.at = _DECODER.raw_decode(self.text, self.at)
            except ValueError:
                raise self.error("not a JSON string") from None
            return str(value)
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {what}")
        self.at = found.end()
        return found.group()


def _read_count(text: str) -> Union[int, str, Dict[str, Any], None]:
    """Return the RFC 14 form of a count; None for invalid text.

    It is an integer, a range (RFC 45), or an idset (RFC 22).
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        try:
            ids = Idset.parse(text)
        except ValueError:
            return None
        return text if ids and 0 not in ids else None
    smallest, plus, largest, operand, operator = found.groups()
    low = _integer(smallest)
    if low is None:
        return None
    if not plus and largest is None:
        return low if operand is None else None
    count: Dict[str, Any] = {"min": low}
    if largest is not None:
        high = _integer(largest)
        if high is None or high < low:
            return None
        count["max"] = high
    if largest is not None or operand is not None:
        step = _integer(operand or "1")
        if step is None:
            return None
        count.update(operator=operator or "+", operand=step)
    return count


def _integer(text: str) -> Optional[int]:
    """Return an integer of 1 or more; None for other text, leading zeros, or more than 18 digits."""
    return int(text) if text[0] != "0" and len(text) <= 18 else None
