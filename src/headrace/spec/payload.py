"""The form of a request's payload as data: which fields it has and of what type, and what a payload has wrong.

Services declare one form for each of their methods (spec/requests), and the broker compares a payload with it before
the handler sees it. Fields beyond the form are accepted, as RFC 6 lets clients be newer than services.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Tuple

    # Name, types of its value (None: any), whether it must be there, and the kind of its items.
    Field = Tuple[str, Optional[Tuple[type, ...]], bool, Any]
    Form = Tuple[Field, ...]
    # By the name of the method; None for a payload that is not JSON, or that the handler reads with its own decoder.
    Methods = Mapping[str, Optional[Form]]

# What JSON gives, and what modules of one broker hand each other in its stead.
_TYPES = {float: (float, int), list: (list, tuple)}
_NAMES = {dict: "object", list: "array", tuple: "array", float: "number", type(None): "null"}


def form(fields: Mapping[str, Any]) -> Form:
    """The form with `fields`: names and kinds. A name that ends with `?` may be absent or null.

    A kind is a type (`str`, `int`, `float` for any number, `bool`, `dict`, `list`, `object` for anything), a tuple of
    alternative types, `[kind]` for an array of that, or a dict of fields for an object that has these.
    """
    return tuple(_field(name, kind) for name, kind in fields.items())


def _field(name: str, kind: Any) -> Field:
    types, items = _kind(kind)
    needed = name[-1:] != "?"
    return (name if needed else name[:-1], types, needed, items)


def _kind(kind: Any) -> Tuple[Optional[Tuple[type, ...]], Any]:
    """The types of a kind, and what is inside: a Form for an object, a list of one kind for an array."""
    if isinstance(kind, list):
        return (list, tuple), [_kind(kind[0])]
    if isinstance(kind, dict):
        return (dict,), form(kind)
    if kind is object:
        return None, None
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return tuple(accepted for one in kinds for accepted in _TYPES.get(one, (one,))), None


def mismatch(wanted: Form, body: Any) -> str:
    """What is wrong with a payload (None: there is none): `FIELD: expected TYPE, got TYPE`; "" if nothing is."""
    if body is None:
        needed = [f"{name} ({_name_of(types)})" for name, types, must, _items in wanted if must]
        return f"no payload, expected one with {', '.join(needed)}" if needed else ""
    for name, types, must, items in wanted:
        value = body.get(name)
        if types is not None and type(value) in types:
            wrong = _inside(items, value) if items is not None else ""
        elif value is None and not must:
            continue
        elif value is None and name not in body:
            wrong = f": missing, expected {_name_of(types)}"
        else:
            wrong = _compare(types, items, value)
        if wrong:
            return name + wrong
    return ""


def _compare(types: Optional[Tuple[type, ...]], items: Any, value: Any) -> str:
    """What is wrong with one value, to be put behind its name."""
    # A subclass of int, such as an enum's member, is what a module of the same broker may hand over.
    if types is not None and type(value) not in types and (isinstance(value, bool) or not isinstance(value, types)):
        return f": expected {_name_of(types)}, got {_NAMES.get(type(value), type(value).__name__)}"
    return _inside(items, value) if items is not None else ""


def _inside(items: Any, value: Any) -> str:
    if isinstance(items, list):
        types, within = items[0]
        for index, item in enumerate(value):
            wrong = _compare(types, within, item)
            if wrong:
                return f"[{index}]{wrong}"
        return ""
    wrong = mismatch(items, value)
    return f".{wrong}" if wrong else ""


def _name_of(types: Optional[Tuple[type, ...]]) -> str:
    """The types of a kind as a message names them."""
    if types is None:
        return "a value"
    named = ["number" if types == (float, int) else _NAMES.get(one, one.__name__) for one in types]
    return " or ".join(dict.fromkeys(named))
