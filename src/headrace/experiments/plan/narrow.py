"""A part of an experiment: the cells of one target, and those with certain values."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.experiments.file.targets import TYPES
from headrace.experiments.file.templates import facts, show
from headrace.experiments.values import Experiment


class NothingLeft(ValueError):
    """No cell is selected, or the selection is wrong; the message says what would be right."""


def narrow(experiment: Experiment, target: str = "", only: Iterable[str] = ()) -> Experiment:
    """The experiment with the cells of `target`, and of those the ones that `only` selects; cells keep their ids.

    An item of `only` is NAME=VALUE, where NAME is a parameter, or one of cell, job, machine, size and target. Several
    values of one name are alternatives. Raises NothingLeft.
    """
    if target:
        experiment = _on_target(experiment, target)
    values = {cell.id: {name: show(value) for name, value in facts(cell).items()} for cell in experiment.cells}
    known: dict[str, set[str]] = {}
    for of_cell in values.values():
        for name, value in of_cell.items():
            known.setdefault(name, set()).add(value)
    wanted: dict[str, set[str]] = {}
    for item in only:
        name, equals, value = item.partition("=")
        if not equals or name not in known:
            raise NothingLeft(f'"{item}" is not NAME=VALUE, where NAME is one of {", ".join(sorted(known))}')
        if value not in known[name]:
            raise NothingLeft(f'no cell has {name} "{value}": it is {" or ".join(sorted(known[name])[:10])}')
        wanted.setdefault(name, set()).add(value)
    cells = tuple(
        cell for cell in experiment.cells if all(values[cell.id].get(name) in some for name, some in wanted.items())
    )
    if not cells:
        raise NothingLeft("no cell has all of these values")
    return msgspec.structs.replace(experiment, cells=cells)


def _on_target(experiment: Experiment, name: str) -> Experiment:
    targets = tuple(target for target in experiment.targets if target.name == name)
    if not targets:
        declared = [target.name for target in experiment.targets if target.line]
        raise NothingLeft(f'there is no target "{name}": use {" or ".join(declared or TYPES)}')
    cells = tuple(cell for cell in experiment.cells if cell.target == name)
    return msgspec.structs.replace(experiment, targets=targets, cells=cells)
