"""A jobspec as somebody writes it, YAML or JSON, as a request; a short text must not become a great deal of work."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from yaml.composer import Composer

from headrace.graph.model import Graph
from headrace.graph.request import JobRequest, RequestError, parse_jobspec

_MOST_VALUES = 100_000
ERRORS = (RequestError, yaml.YAMLError, RecursionError)
_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Base: Any = _YAML if issubclass(_YAML, Composer) else type("_Base", (Composer, _YAML), {})


class _Loader(_Base):  # type: ignore[misc]
    """With the composer in Python: LibYAML's ends the process where a text is nested some ten thousand times."""

    def __init__(self, text: str) -> None:
        _YAML.__init__(self, text)
        Composer.__init__(self)


def read(text: str, graph: Graph) -> JobRequest:
    """The request of a jobspec, in the units of a graph. Raises one of ERRORS."""
    return parse_jobspec(_decoded(text), graph.units)


def _decoded(text: str) -> Any:
    """Raises yaml.YAMLError or RecursionError, and RequestError where a short text stands for a great deal."""
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.MsgspecError:
            pass
    try:
        found = yaml.load(text, Loader=_Loader)
    except ValueError as exc:
        # Python's of a number of thousands of digits is about Python.
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
