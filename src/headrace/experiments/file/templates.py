"""`{{NAME}}` in texts: the parameters of a cell, its size and machine, and the variables of the experiment.

Other braces stay as they are (`{{.Id}}`, `${NAME}`), so that commands can have templates of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Union

from headrace.experiments.values import Cell, Experiment

Scalar = Union[str, int, float, bool]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_PLACE = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_-]*)[ \t]*\}\}")

# Fields of Kubernetes whose values are texts.
_OF_TEXTS = frozenset(
    ("annotations", "args", "command", "data", "env", "labels", "matchLabels", "nodeSelector", "stringData")
)
# Names that each cell has, whatever its parameters are.
BUILT_IN = ("cell", "job", "machine", "size", "target")


def names(text: str) -> Iterator[tuple[str, int]]:
    """The names in a text, each with the number of line ends before it."""
    for match in _PLACE.finditer(text):
        yield match[1], text.count("\n", 0, match.start())


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """The text with values for names. Raises KeyError for an unknown name."""
    return _PLACE.sub(lambda match: show(values[match[1]]), text) if "{{" in text else text


def fill_texts(texts: Any, values: Mapping[str, Scalar]) -> Any:
    """A text, or the texts of a tuple, or of a mapping, which keeps its keys. Raises KeyError for an unknown name."""
    if isinstance(texts, str):
        return fill(texts, values)
    if isinstance(texts, dict):
        return {key: fill(text, values) for key, text in texts.items()}
    return tuple(fill(text, values) for text in texts)


def fill_object(data: Any, values: Mapping[str, Scalar], is_text: bool = False) -> Any:
    """An object of Kubernetes. Raises KeyError for an unknown name.

    A text that is `{{NAME}}` and nothing more becomes the value itself, so that it can be a number; where Kubernetes
    wants texts (environment, arguments, labels), it stays a text.
    """
    if isinstance(data, dict):
        return {key: fill_object(one, values, is_text or key in _OF_TEXTS) for key, one in data.items()}
    if isinstance(data, list):
        return [fill_object(one, values, is_text) for one in data]
    if not isinstance(data, str):
        return data
    whole = None if is_text else _PLACE.fullmatch(data)
    return values[whole[1]] if whole else fill(data, values)


def show(value: Scalar) -> str:
    """A value as it stands in a text and in the id of a cell: true, 10, .5 as 0.5, text as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_of(experiment: Experiment, cell: Cell) -> dict[str, Scalar]:
    """All names of a cell with their values, for `fill`; parameters hide variables of the same name."""
    variables = {name: value for name, value in experiment.variables.items() if isinstance(value, (str, int, float))}
    return {**variables, **facts(cell)}


def facts(cell: Cell) -> dict[str, Scalar]:
    """The parameters of a cell, and the names that each cell has."""
    return {**cell.parameters, **built_in(cell.id, cell.job.name, cell.machine, cell.size, cell.target)}


def built_in(cell: str, job: str, machine: str, size: int, target: str) -> dict[str, Scalar]:
    """The values of the names in BUILT_IN."""
    return {"cell": cell, "job": job, "machine": machine, "size": size, "target": target}
