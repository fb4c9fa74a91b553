"""JSON for short-lived commands, using only the compiled part of the standard library's package json.

Package json imports re, and with it a dozen modules, which takes a third of the time of a command that makes one
request to a broker. It is imported only if the compiled part is missing or different (another Python), and for its
error messages: for invalid JSON, or a value that JSON cannot represent.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple


_SPACE = " \t\n\r"
_COMPACT = (",", ":")


class _Rules:
    """The rules that the scanner reads, with the package's defaults."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant: Any = float


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _StrictRules(_Rules):
    parse_constant = staticmethod(_no_constant)


try:
    import _json

    _scanner: Any = _json.make_scanner
    _scanners = {True: _scanner(_Rules), False: _scanner(_StrictRules)}
    _encoder: Any = _json.make_encoder
    _quotes = {True: _json.encode_basestring_ascii, False: _json.encode_basestring}
except (ImportError, AttributeError):
    _scanners, _encoder, _quotes = {}, None, {}


def loads(text: str, constants: bool = True) -> Any:
    """Decode a text. NaN and Infinity, which are not JSON, are accepted only with `constants`.

    Raises ValueError (usually json.JSONDecodeError) and RecursionError.
    """
    try:
        value, end = _scanners[constants](text, len(text) - len(text.lstrip(_SPACE)))
        if not text[end:].strip(_SPACE):
            return value
    except Exception:
        # Below, package json raises the error with its message.
        pass
    import json

    return json.loads(text) if constants else json.loads(text, parse_constant=_no_constant)


def dumps(obj: Any, separators: Tuple[str, str] = _COMPACT, ensure_ascii: bool = False, constants: bool = True) -> str:
    """Encode `obj` as JSON, by default compact and not escaped to ASCII.

    NaN and infinity are accepted only with `constants`. Raises ValueError, TypeError and RecursionError.
    """
    item, key = separators
    try:
        encode = _encoder({}, _refuse, _quotes[ensure_ascii], None, key, item, False, False, constants)
        return "".join(encode(obj, 0))
    except Exception:
        import json

        return json.dumps(obj, separators=separators, ensure_ascii=ensure_ascii, allow_nan=constants)


def _refuse(obj: Any) -> Any:
    raise TypeError(f"{type(obj).__name__} cannot be encoded as JSON")


_INFINITE = float("inf")


def as_json(value: Any, path: Tuple[str, ...] = ()) -> Any:
    """Convert a value of a TOML configuration to JSON types; dates and times become text (ISO 8601).

    Raises ValueError with the key of a number that is infinite or not a number.
    """
    if isinstance(value, dict):
        return {key: as_json(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner, (*path[:-1], f"{path[-1]}[{index}]")) for index, inner in enumerate(value)]
    if isinstance(value, float) and not -_INFINITE < value < _INFINITE:
        raise ValueError(f"{'.'.join(path)}: must be a finite number, not {value}")
    # Only dates and times have this method; their classes are not imported for a configuration without them.
    return value.isoformat() if hasattr(value, "isoformat") else value


def kind_of(value: Any) -> str:
    """Return the kind of a decoded value: ``an object``, ``a number``; ``missing or null`` for None."""
    if value is None:
        return "missing or null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)
