"""The declaration of fields: an annotation has the type, and marks for everything else.

    size: Annotated[Size, "Number of pods.", Effect.RESIZES, Support.LOCAL] = 1

The text describes the field to users. The CRD, the page of fields, validation, `headrace mini run` and the operator
read the fields through `fields_of`, so a new field is declared only in `fields`. Pure.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from headrace.k8s.objects.problems import Problem

INT64 = 2**63


class Effect(enum.Enum):
    """The effect of a changed field on the pods of a live MiniCluster.

    A field without this mark recreates them.
    """

    AT_ONCE = "at once"  # the operator applies it at once; pods are not affected
    RESIZES = "resizes"  # pods are created, or drained and deleted; brokers join and leave
    RELOADS = "reloads"  # running brokers load it
    NEXT_START = "next start"  # only pods that are created later have it
    RECREATES = "recreates"  # all pods are recreated by a new Job, because a Job's template is immutable


class Support(enum.Enum):
    """Where a field is known or applied apart from the operator."""

    ADDED = "not in the Flux Operator"
    LOCAL = "applied by headrace mini run"  # with all fields below it


class Format(enum.Enum):
    """The format of a text or number."""

    QUANTITY = "quantity"
    INT64 = "int64"


class Bounds(Struct, frozen=True):
    """The least and the largest number. `least_means`, `most_means` and `reason` are for messages."""

    least: int
    most: int | None = None
    least_means: str = ""
    most_means: str = ""
    reason: str = ""  # why no larger number is possible

    def broken_by(self, value: int) -> str:
        """The rule that a number breaks; "" if it is within the bounds."""
        if self.least <= value and (self.most is None or value <= self.most):
            return ""
        least = f"{self.least} ({self.least_means})" if self.least_means else str(self.least)
        most = f"{self.most} ({self.most_means})" if self.most_means else str(self.most)
        if self.most is not None and value > self.most and self.reason:
            return f"must be {most} or less, {self.reason}, not {value}"
        if self.most is not None and not self.reason:
            return f"must lie between {least} and {most}, not {value}"
        if least == "0":
            return f"must not be negative, it is {value}"
        return f"must be {least} or more, not {value}"


class OneOf(Struct, frozen=True):
    """A closed set of texts. An `optional` field may also be "", which means not given."""

    choices: tuple[str, ...]
    optional: bool = True


class Length(Struct, frozen=True):
    """The largest number of characters of a text."""

    most: int


class Items(Struct, frozen=True):
    """The number of items of a list, and the field that identifies an item ("": none).

    A list without such a field is replaced as a whole. `noun` names the items in messages.
    """

    most: int
    noun: str
    least: int = 0
    key: str = ""


class StoredDefault(Struct, frozen=True):
    """A default that the API server writes into the stored object although the value is empty."""

    value: Any


class FieldType(Struct, frozen=True):
    """A type without `None`, and its marks. `kind` is int, bool, str, list, dict, or a class of records."""

    kind: type
    item: FieldType | None = None
    """The type of the items of a list, or of the values of a mapping."""
    marks: tuple[Any, ...] = ()

    def mark(self, kind: type) -> Any:
        """The mark of this class, or None."""
        return next((one for one in self.marks if isinstance(one, kind)), None)


class Field(Struct, frozen=True):
    """A field of a record: its names in the API and in Python, and the contents of its annotation."""

    name: str
    attribute: str
    type: FieldType
    text: str
    required: bool
    default: Any
    """The default; None for a required field."""
    constant: bool
    """Whether the default is a constant, and not an empty list or mapping."""

    @property
    def effect(self) -> Effect | None:
        found: Effect | None = self.type.mark(Effect)
        return found

    def is_marked(self, support: Support) -> bool:
        return support in self.type.marks


def type_of(hint: Any) -> FieldType:
    """The type that an annotation stands for."""
    origin, marks = get_origin(hint), list[Any]()
    while origin in (Annotated, UnionType, Union):
        if origin is Annotated:
            hint, *more = get_args(hint)
            marks += more
        else:
            hint = next(one for one in get_args(hint) if one is not NoneType)
        origin = get_origin(hint)
    if origin in (list, dict):
        return FieldType(origin, type_of(get_args(hint)[-1]), tuple(marks))
    return FieldType(hint, None, tuple(marks))


@functools.cache
def fields_of(record: type[Struct]) -> dict[str, Field]:
    """The fields of a class of records by their names in the API, in their order."""
    found: dict[str, Field] = {}
    # msgspec.structs.fields and typing.get_type_hints take three times as long, which would slow down every command.
    hints = inspect.get_annotations(record, eval_str=True)
    names = zip(record.__struct_fields__, record.__struct_encode_fields__)
    missing = [msgspec.NODEFAULT] * (len(record.__struct_fields__) - len(record.__struct_defaults__))
    for (attribute, name), default in zip(names, (*missing, *record.__struct_defaults__)):
        kind, make = type_of(hints[attribute]), getattr(default, "factory", None)
        required = default is msgspec.NODEFAULT
        found[name] = Field(
            name=name,
            attribute=attribute,
            type=kind,
            text=kind.mark(str) or "",
            required=required,
            default=make() if make else None if required else default,
            constant=not (make or required),
        )
    return found


def check_marks(value: Any, kind: FieldType, path: str) -> Iterator[Problem]:
    """Violations of the declared bounds, choices and lengths by a value and the values in it.

    The value must have the right type.
    """
    if isinstance(value, Struct):
        for one in _checked_fields(type(value)):
            given = getattr(value, one.attribute)
            if given is not None and given != one.default:
                yield from check_marks(given, one.type, f"{path}.{one.name}")
        return
    for mark in kind.marks:
        rule = _broken(mark, value)
        if rule:
            yield Problem(path, rule)
    if kind.item is None or not _is_checked(kind.item):
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_marks(item, kind.item, f"{path}[{index}]")
    else:
        for key, item in value.items():
            yield from check_marks(item, kind.item, f"{path}.{key}")


@functools.cache
def _checked_fields(record: type[Struct]) -> tuple[Field, ...]:
    """The fields of a class of records whose values, or nested values, may break a mark.

    Defaults break none.
    """
    return tuple(one for one in fields_of(record).values() if _is_checked(one.type))


def _is_checked(kind: FieldType) -> bool:
    marked = any(isinstance(mark, (Bounds, OneOf, Length, Items)) for mark in kind.marks)
    return marked or issubclass(kind.kind, Struct) or (kind.item is not None and _is_checked(kind.item))


def _broken(mark: Any, value: Any) -> str:
    """The rule of a mark that a value breaks; "" for none."""
    if isinstance(mark, Bounds):
        return mark.broken_by(value)
    if isinstance(mark, OneOf) and value not in mark.choices and (value or not mark.optional):
        return f"must be one of {', '.join(mark.choices)}, not {value!r}"
    if isinstance(mark, Length) and len(value) > mark.most:
        return f"has {len(value)} characters, at most {mark.most} fit"
    if isinstance(mark, Items) and len(value) > mark.most:
        return f"has {len(value)} {mark.noun}, at most {mark.most} fit"
    return ""
