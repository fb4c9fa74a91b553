"""A user's jobspec text, YAML or JSON, as a request. Limits keep a short text from causing much work."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from yaml.composer import Composer

from headrace.sched.graph.model import Graph
from headrace.sched.graph.request import JobRequest, RequestError, parse_jobspec

_MOST_VALUES = 100_000
# Maximum number of characters of a text. YAML of this size takes about a second to compose, and its values are counted
# only afterwards.
LARGEST = 2**20
ERRORS = (RequestError, yaml.YAMLError, RecursionError)
_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Base: Any = _YAML if issubclass(_YAML, Composer) else type("_Base", (Composer, _YAML), {})


class _Loader(_Base):  # type: ignore[misc]
    """Uses the composer in Python: LibYAML before 0.2.6 crashes on some ten thousand nested levels."""

    def __init__(self, text: str) -> None:
        _YAML.__init__(self, text)
        Composer.__init__(self)


def read(text: str, graph: Graph) -> JobRequest:
    """The request of a jobspec, in the units of a graph. Raises one of ERRORS."""
    return parse_jobspec(decoded(text), graph.units)


def decoded(text: str) -> Any:
    """The decoded text. Raises yaml.YAMLError, RecursionError or RequestError.

    RequestError is for YAML that is too long, or whose aliases expand to too much.
    """
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.MsgspecError:
            pass
    if len(text) > LARGEST:
        raise RequestError(f"YAML must have at most {LARGEST} characters, not {len(text)}")
    try:
        found = yaml.load(text, Loader=_Loader)
    except ValueError as exc:
        # Python's message about a number with thousands of digits names a setting of Python.
        why = "a number has thousands of digits" if "digits" in str(exc) else str(exc)
        raise RequestError(f"a value cannot be read: {why}") from None
    stack, count = [found], 0
    while stack:
        item = stack.pop()
        count += 1
        if count > _MOST_VALUES:
            raise RequestError(f"more than {_MOST_VALUES} values, with what aliases stand for")
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found
