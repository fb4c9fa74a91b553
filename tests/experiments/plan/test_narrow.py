"""A part of an experiment: the cells of a target, and those with certain values."""

from __future__ import annotations

import pytest

from headrace.experiments.file.load import read_text
from headrace.experiments.plan import NothingLeft, narrow

TEXT = """\
matrix: {size: [1, 2]}
parameters: {steps: [10, 20], fast: [true, false]}
targets: {here: {}, there: {type: instance}}
jobs: {a: {command: a}}
"""
EXPERIMENT = read_text(TEXT, "exp.yaml")


def left(target: str = "", *only: str) -> list[str]:
    return [cell.id for cell in narrow(EXPERIMENT, target, only).cells]


def test_nothing_given_leaves_all() -> None:
    assert narrow(EXPERIMENT) == EXPERIMENT


def test_values_of_a_name_are_alternatives_and_names_are_conditions() -> None:
    assert left("", "steps=10", "fast=true", "size=1", "size=2", "target=here") == [
        "a-1-here-steps=10-fast=true",
        "a-2-here-steps=10-fast=true",
    ]
    assert left("there", "cell=a-2-there-steps=20-fast=false") == ["a-2-there-steps=20-fast=false"]


def test_a_target_that_is_left_out_is_not_there_any_more() -> None:
    found = narrow(EXPERIMENT, "there")
    assert [target.name for target in found.targets] == ["there"]
    assert {cell.target for cell in found.cells} == {"there"}


@pytest.mark.parametrize(
    ("target", "only", "message"),
    [
        ("nowhere", (), 'there is no target "nowhere": use here or there'),
        (
            "",
            ("steps",),
            '"steps" is not NAME=VALUE, where NAME is one of cell, fast, job, machine, size, steps, target',
        ),
        (
            "",
            ("step=1",),
            '"step=1" is not NAME=VALUE, where NAME is one of cell, fast, job, machine, size, steps, target',
        ),
        ("", ("steps=30",), 'no cell has steps "30": it is 10 or 20'),
        ("here", ("target=there",), 'no cell has target "there": it is here'),
        ("", ("size=1", "cell=a-2-here-steps=10-fast=true"), "no cell has all of these values"),
    ],
)
def test_a_selection_of_nothing_is_an_error(target: str, only: tuple[str, ...], message: str) -> None:
    with pytest.raises(NothingLeft) as caught:
        left(target, *only)
    assert str(caught.value) == message


def test_without_declared_targets_the_types_are_the_targets() -> None:
    with pytest.raises(NothingLeft, match="use local or instance or kubernetes"):
        narrow(read_text("jobs: {a: {command: a}}\n", "exp.yaml", "cloud"), "cloud")
