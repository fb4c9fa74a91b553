"""A job's request in the form of the matcher: the resource tree of RFC 14, with counts as sequences.

The jobspec arrives as decoded data. The amounts of each type that one unit of a request needs below it are computed
once here, so that the matcher can reject a subtree by comparing two numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from reprlib import repr as shown
from typing import Any

from headrace.formats.spec import ranges
from headrace.formats.spec.idset import Idset

SLOTS = ("slot", "xor_slot")
# The keys of a resource (RFC 14).
_KEYS = frozenset(("type", "id", "count", "unit", "exclusive", "label", "with"))
_MAX_DEPTH = 64
_MAX_RESOURCES = 512
# The upper end of an open range: more than any graph has.
_NO_END = 2**62
# Units: a prefix, decimal or binary (Ki, Mi, ...), and a quantity: bytes, bits, watts, hertz, possibly per second.
_UNIT = re.compile(r"(|[kKMGTPE]i?)(B|b|W|Hz)(/s)?\Z")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


class RequestError(ValueError):
    """An invalid jobspec: the message names the field and what it should be."""


class Count:
    """The counts that a resource accepts (RFC 14, count).

    They are a sequence from `low` to `high` (min, max, operator, operand), or the set `ids` (RFC 22). `top` is the
    largest value of the sequence, which may be less than `high`: 2 to 64 by squaring ends with 16.
    """

    __slots__ = ("high", "ids", "low", "operand", "operator", "top")

    def __init__(
        self, low: int, high: int | None = None, operator: str = "+", operand: int = 1, ids: Idset | None = None
    ) -> None:
        self.low = low
        self.high = low if high is None else high
        self.ids = ids
        self.operator = operator
        self.operand = operand
        self.top = self.best(self.high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Count) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[object, ...]:
        return self.low, self.high, self.operator, self.operand, self.ids

    def best(self, available: int) -> int:
        """The largest value of the sequence that does not exceed `available`; 0 if there is none."""
        low, high = self.low, self.high
        if low > available:
            return 0
        if low == high:
            return low
        limit = min(high, available)
        if self.ids is not None:
            return (self.ids.bits & (1 << limit + 1) - 1).bit_length() - 1
        if self.operator == "+":
            return low + (limit - low) // self.operand * self.operand
        value = low
        while True:
            if self.operator == "*":
                larger = value * self.operand
            else:
                # A power with more bits than the limit is not computed, however large the operand.
                bits = (value.bit_length() - 1) * self.operand
                larger = limit + 1 if bits > limit.bit_length() else value**self.operand
            if larger > limit or larger <= value:
                return value
            value = larger

    def scaled(self, numerator: int, denominator: int) -> Count | None:
        """The count converted to another unit, rounded up; one unit is `numerator / denominator` of it.

        None for a sequence whose converted values would not be a sequence.
        """
        if numerator == denominator:
            return self
        factor, rest = divmod(numerator, denominator)
        if self.low == self.high:
            return Count(-(-self.low * numerator // denominator))
        if self.ids is not None or self.operator == "^" or (rest and (self.operator, self.operand) != ("+", 1)):
            return None
        low = -(-self.low * numerator // denominator)
        high = self.high if self.high >= _NO_END else max(low, self.high * numerator // denominator)
        return Count(
            low, high, self.operator, self.operand * factor if self.operator == "+" and not rest else self.operand
        )


class Request:
    """One resource of a request. Candidates for it are collected under `key`.

    `takes_units`: it is a resource of a slot that is not exclusive (RFC 14, slot), without contents. The slot takes
    `count` units of pools of this type, and other slots and jobs may use the rest of these pools.
    """

    __slots__ = ("_needs", "count", "exclusive", "is_slot", "is_xor", "key", "label", "takes_units", "type", "with_")

    def __init__(
        self,
        type: str,
        count: Count,
        with_: list[Request] | None = None,
        exclusive: bool | None = None,
        label: str = "",
    ) -> None:
        self.type = type
        self.count = count
        self.with_ = with_ or []
        self.exclusive = exclusive
        self.label = label
        self.is_slot = type in SLOTS
        self.is_xor = type == "xor_slot"
        self.takes_units = False
        if self.is_slot:
            for part in self.with_:
                part.takes_units = part.exclusive is False and not part.with_
        # Candidates of alternatives that exclude each other are kept apart.
        self.key = f"{type} {id(self)}" if self.is_xor else type
        self._needs: dict[str, int] | None = None

    @property
    def needs(self) -> dict[str, int]:
        """The minimum of each type that a single unit takes, including itself and its contents."""
        if self._needs is None:
            needs = {} if self.is_slot else {self.type: 1}
            for name, amount in total_needs(self.with_).items():
                needs[name] = needs.get(name, 0) + amount
            self._needs = needs
        return self._needs


class JobRequest:
    """A job's request: its resources, duration and constraint (RFC 31, or None).

    The duration is in seconds; 0 lasts until the graph's end. `shape` is set by a queue: requests with the same shape
    differ at most in duration. A request of several `sets` (`together`) is satisfied if all of them are, each with its
    own resources and its own constraint.
    """

    __slots__ = ("constraint", "duration", "is_apart", "resources", "sets", "shape", "within")

    def __init__(
        self,
        resources: list[Request],
        duration: int,
        constraint: Any = None,
        sets: tuple[JobRequest, ...] = (),
        within: str = "",
        is_apart: bool = False,
    ) -> None:
        self.resources = resources
        self.duration = duration
        self.constraint = constraint
        self.sets = sets
        self.within = within
        self.is_apart = is_apart
        self.shape: str | None = None

    def lasting(self, duration: int) -> JobRequest:
        """The same request with another duration (seconds)."""
        sets = tuple([one.lasting(duration) for one in self.sets])
        return JobRequest(self.resources, duration, self.constraint, sets, self.within, self.is_apart)

    @property
    def needs(self) -> dict[str, int]:
        """The minimum amounts by type that satisfy the request."""
        if not self.sets:
            return total_needs(self.resources)
        needs: dict[str, int] = {}
        for one in self.sets:
            for name, amount in one.needs.items():
                needs[name] = needs.get(name, 0) + amount
        return needs


def together(sets: Sequence[JobRequest], within: str = "") -> JobRequest:
    """The request that needs all of some requests of one duration, on different resources.

    `within`: the type of a vertex that contains all of them, "" for no such type. Sets that are apart (`is_apart`)
    share no node.
    """
    resources = [resource for one in sets for resource in one.resources]
    return JobRequest(resources, sets[0].duration, None, tuple(sets), within)


def total_needs(requests: Sequence[Request]) -> dict[str, int]:
    """The least amounts by type that satisfy all of `requests`.

    Of sibling slots that are alternatives (xor), only the least amounts count.
    """
    needs: dict[str, int] = {}
    alternatives: list[dict[str, int]] = []
    for request in requests:
        amounts = {name: amount * request.count.low for name, amount in request.needs.items()}
        if request.is_slot and (request.is_xor or sum(r.is_slot for r in requests) > 1):
            alternatives.append(amounts)
            continue
        for name, amount in amounts.items():
            needs[name] = needs.get(name, 0) + amount
    if alternatives:
        for name in set.intersection(*(set(a) for a in alternatives)):
            needs[name] = needs.get(name, 0) + min(a[name] for a in alternatives)
    return needs


def has_alternatives(requests: Sequence[Request]) -> bool:
    """Whether slots anywhere in `requests` are alternatives: sibling slots, or an `xor_slot`."""
    slots = sum(request.is_slot for request in requests)
    return slots > 1 or any(request.is_xor or has_alternatives(request.with_) for request in requests)


def has_units(requests: Sequence[Request]) -> bool:
    """Whether slots anywhere in `requests` take units of pools."""
    return any([request.takes_units or has_units(request.with_) for request in requests])


def _count(value: Any, where: str) -> Count:
    if isinstance(value, bool):
        raise RequestError(f"{where}.count: must be a positive integer, a range or a mapping, not {value!r}")
    if isinstance(value, int):
        if value < 1:
            raise RequestError(f"{where}.count: must be at least 1, not {value}")
        return Count(value)
    if isinstance(value, str):
        return _count_of_text(value, where)
    if not isinstance(value, dict):
        raise RequestError(f"{where}.count: must be a positive integer, a range or a mapping, not {shown(value)}")
    low = value.get("min")
    if not isinstance(low, int) or isinstance(low, bool) or low < 1:
        raise RequestError(f"{where}.count.min: must be a positive integer, not {shown(low)}")
    high = value.get("max", max(low, _NO_END))
    if not isinstance(high, int) or isinstance(high, bool) or high < low:
        raise RequestError(f"{where}.count.max: must be an integer of at least min ({low}), not {shown(high)}")
    operator = value.get("operator", "+")
    if operator not in ("+", "*", "^"):
        raise RequestError(f"{where}.count.operator: must be one of + * ^, not {shown(operator)}")
    operand = value.get("operand", 1)
    if not isinstance(operand, int) or isinstance(operand, bool) or operand < 1:
        raise RequestError(f"{where}.count.operand: must be a positive integer, not {shown(operand)}")
    return Count(low, high, operator, operand)


def _count_of_text(text: str, where: str) -> Count:
    """A count from text: a range of RFC 45 or a set of counts (RFC 22)."""
    try:
        found = ranges.parse(text)
    except ranges.RangeError as exc:
        raise RequestError(f"{where}.count: {exc}") from None
    if found.min < 1:
        raise RequestError(f"{where}.count: must be at least 1, not {text!r}")
    high = max(found.min, _NO_END) if found.max is None else found.max
    return Count(found.min, high, found.operator, found.operand, found.ids)


def _none(kind: str) -> frozenset[str]:
    """The units of any type in a graph without units."""
    return frozenset({""})


def _in_units_of_graph(count: Count, unit: Any, kind: str, known: frozenset[str], where: str) -> Count:
    """Convert a count in `unit` (RFC 14) to the graph's unit. A type outside the graph has no unit."""
    if not isinstance(unit, str):
        raise RequestError(f"{where}.unit: must be a string, not {shown(unit)}")
    if unit and kind in SLOTS:
        raise RequestError(f"{where}.unit: slots are counted without a unit")
    if not unit or not known:
        return count
    if len(known) > 1:
        raise RequestError(
            f"{where}.unit: {kind} is counted in several units here: {', '.join(map(repr, sorted(known)))}"
        )
    (own,) = known
    found = unit_ratio(unit, own)
    if found is None:
        counted = f"in {own!r}" if own else "without a unit"
        raise RequestError(f"{where}.unit: {unit!r} cannot be converted: {kind} is counted {counted} here")
    scaled = count.scaled(*found)
    if scaled is None:
        raise RequestError(f"{where}.unit: these counts cannot be converted from {unit!r}: give them in {own!r}")
    return scaled


def parse_resources(
    items: Any,
    where: str = "resources",
    above: Sequence[int] = (),
    units_of: Callable[[str], frozenset[str]] = _none,
) -> list[Request]:
    """The `resources` of a jobspec (RFC 14) as requests. Raises RequestError naming the field.

    `above` are the numbers of resources in the lists that contain this one; `units_of` returns the units in which the
    graph counts a type (`Graph.units`).
    """
    if not isinstance(items, list) or not items:
        raise RequestError(f"{where}: must be a list of at least one resource")
    if len(above) > _MAX_DEPTH:
        raise RequestError(f"resources: nested more than {_MAX_DEPTH} levels deep")
    beside = (*above, len(items))
    if sum(beside) > _MAX_RESOURCES:
        raise RequestError(f"{where}: more than {_MAX_RESOURCES} resources, here and above")
    out = []
    for i, item in enumerate(items):
        here = f"{where}[{i}]"
        if not isinstance(item, dict):
            raise RequestError(f"{here}: must be a mapping, not {shown(item)}")
        unknown = item.keys() - _KEYS
        if unknown:
            # The wording is Fluxion's; the key is added.
            raise RequestError(f"{here}: Unrecognized key in resource mapping: {shown(sorted(map(str, unknown))[0])}")
        kind = item.get("type")
        if not isinstance(kind, str) or not kind:
            raise RequestError(f"{here}.type: must be a string, not {shown(kind)}")
        if "count" not in item:
            raise RequestError(f"{here}.count: missing")
        if kind == "gpu" and item["count"] == 0 and not isinstance(item["count"], bool):
            # A version 1 jobspec may list GPUs with a count of 0.
            continue
        below = parse_resources(item["with"], f"{here}.with", beside, units_of) if "with" in item else []
        if kind in SLOTS and not below:
            raise RequestError(f"{here}.with: a slot must contain at least one resource")
        exclusive = item.get("exclusive")
        if exclusive is not None and not isinstance(exclusive, bool):
            raise RequestError(f"{here}.exclusive: must be true or false, not {shown(exclusive)}")
        count = _count(item["count"], here)
        if "unit" in item:
            count = _in_units_of_graph(count, item["unit"], kind, units_of(kind), here)
        out.append(Request(kind, count, below, exclusive, str(item.get("label", ""))))
    return out


def parse_jobspec(obj: Any, units_of: Callable[[str], frozenset[str]] = _none) -> JobRequest:
    """A decoded jobspec as a JobRequest, its counts in the graph's units (see parse_resources).

    Raises RequestError naming the field that is wrong.
    """
    if not isinstance(obj, dict):
        raise RequestError("jobspec: must be a mapping")
    attributes = obj.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise RequestError(f"attributes: must be a mapping, not {shown(attributes)}")
    system = attributes.get("system") or {}
    if not isinstance(system, dict):
        raise RequestError(f"attributes.system: must be a mapping, not {shown(system)}")
    duration = system.get("duration", 0)
    if isinstance(duration, bool) or not isinstance(duration, int | float) or not 0 <= duration < 2**53:
        raise RequestError(
            f"attributes.system.duration: must be a number of seconds of at least 0, not {shown(duration)}"
        )
    resources = parse_resources(obj.get("resources"), units_of=units_of)
    return JobRequest(resources, int(duration), system.get("constraints"))


def unit_ratio(unit: str, into: str) -> tuple[int, int] | None:
    """The size of a `unit` in `into`, as numerator and denominator; None for different quantities."""
    if unit == into:
        return 1, 1
    given, wanted = _UNIT.match(unit), _UNIT.match(into)
    if given is None or wanted is None or given.group(2, 3) != wanted.group(2, 3):
        return None
    return _multiple(given[1]), _multiple(wanted[1])


def _multiple(prefix: str) -> int:
    return int((1024 if prefix[1:] else 1000) ** _POWERS[prefix[:1]])
