"""Forms of request payloads, which declare fields and types, and the check of payloads.

Services declare a form for each of their methods (spec/requests). The broker compares a payload with the form before it
calls the handler. Additional fields are accepted, since RFC 6 allows clients to be newer than services.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Tuple

    # Name of the field, types of its value (None: any), whether it is required, and the kind of its items.
    Field = Tuple[str, Optional[Tuple[type, ...]], bool, Any]
    Form = Tuple[Field, ...]
    # Forms by method; None for a payload that is not JSON, or that the handler decodes itself.
    Methods = Mapping[str, Optional[Form]]

# The types that are accepted for a JSON type, since modules of one broker pass each other Python objects.
_TYPES = {float: (float, int), list: (list, tuple)}
_NAMES = {dict: "object", list: "array", tuple: "array", float: "number", type(None): "null"}


def form(fields: Mapping[str, Any]) -> Form:
    """Make a form from `fields`, names with kinds.

    The field of a name that ends with `?` may be absent or null. A kind is a type (`str`, `int`, `float` for any
    number, `bool`, `dict`, `list`, `object` for anything), a tuple of alternative types, `[kind]` for an array of a
    kind, or a dict of fields for an object with these fields.
    """
    return tuple(_field(name, kind) for name, kind in fields.items())


def _field(name: str, kind: Any) -> Field:
    types, items = _kind(kind)
    needed = name[-1:] != "?"
    return (name if needed else name[:-1], types, needed, items)


def _kind(kind: Any) -> Tuple[Optional[Tuple[type, ...]], Any]:
    """The types of a kind, and the kind of its contents: a Form for an object, [kind] for an array."""
    if isinstance(kind, list):
        return (list, tuple), [_kind(kind[0])]
    if isinstance(kind, dict):
        return (dict,), form(kind)
    if kind is object:
        return None, None
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return tuple(accepted for one in kinds for accepted in _TYPES.get(one, (one,))), None


def mismatch(wanted: Form, body: Any) -> str:
    """The difference of a payload from a form (`FIELD: expected TYPE, got TYPE`), "" if it matches.

    None stands for a request without a payload.
    """
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
    """The difference of a value, as text to append to the field's name."""
    # A module of the same broker may pass a subclass of int, such as a member of an enum.
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
    """The types of a kind for a message."""
    if types is None:
        return "a value"
    named = ["number" if types == (float, int) else _NAMES.get(one, one.__name__) for one in types]
    return " or ".join(dict.fromkeys(named))
