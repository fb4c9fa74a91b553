"""Decoding of jobspecs that are similar to the previous jobspec. Pure.

A user's jobs often differ only in an argument, so most of the text is the same. A jobspec is therefore decoded part by
part down to `attributes.system`. If the text of a part is the same as in the last jobspec, the last jobspec's object is
used. It is neither decoded again nor stored twice, and later code recognises it by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.decode
_BRACE = ord("{")
_ABSENT = object()
# The objects that are decoded part by part, each with the key of the next inner object.
_INNER = {"": "attributes", "attributes": "system"}


class Decoded(NamedTuple):
    """A JSON object, the text of each part, and the inner object, which is decoded in the same way."""

    value: dict[str, Any]
    texts: dict[str, msgspec.Raw]
    inner: Decoded | None


NOTHING = Decoded({}, {}, None)


def decode(text: bytes | msgspec.Raw, last: Decoded, where: str = "") -> Decoded:
    """The object in `text`, with parts of `last` where the text or value is the same.

    Callers must not change `last`. `where` is the key of an inner object, or "" for the whole jobspec. Raises
    msgspec.DecodeError for invalid JSON or text that is not an object, and RecursionError.
    """
    texts = _parts(text)
    value: dict[str, Any] = {}
    same = len(texts) == len(last.texts)
    inner, key = last.inner, _INNER.get(where)
    for name, part in texts.items():
        if last.texts.get(name) == part:
            value[name] = last.value[name]
            continue
        same = False
        if name == key and memoryview(part)[0] == _BRACE:
            inner = decode(part, inner or NOTHING, name)
            value[name] = inner.value
        else:
            value[name] = shared(_decode(part), last.value.get(name, _ABSENT))
    return last if same else Decoded(value, texts, inner)


def fresh(decoded: Decoded, last: Decoded) -> Iterator[Any]:
    """Yield the parts of an object that differ from `last`, from the outer object to the inner objects."""
    for name, value in decoded.value.items():
        if decoded.inner is not None and value is decoded.inner.value:
            yield from fresh(decoded.inner, last.inner or NOTHING)
        elif value is not last.value.get(name, _ABSENT):
            yield value


def shared(new: Any, last: Any) -> Any:
    """Replace parts of `new` by equal parts of `last` (1 and true are not equal). Changes `new`."""
    if type(new) is not type(last):
        return new
    if isinstance(new, dict):
        same = len(new) == len(last)
        for key, value in new.items():
            other = last.get(key, _ABSENT)
            # A fast path for strings, because environments have dozens of them.
            kept = (other if value == other else value) if type(value) is str else shared(value, other)
            if kept is not value:
                new[key] = kept
            if kept is not other:
                same = False
        return last if same else new
    if isinstance(new, list):
        if len(new) == len(last):
            new = [shared(value, other) for value, other in zip(new, last)]
            return last if all(value is other for value, other in zip(new, last)) else new
        return new
    return last if new == last else new
