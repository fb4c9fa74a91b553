"""Counts in units: converted into those of the graph, or refused with the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import Graph, RequestError, Scheduler, parse_jobspec
from headrace.sched.graph.request import Count, unit_ratio

KNOWN = {"memory": "GB", "ssd": "GiB", "power": "W", "core": "", "tape": "reels"}


@pytest.mark.parametrize(
    ("unit", "into", "expected"),
    [
        ("MB", "GB", 1 / 1000),
        ("GiB", "MiB", 1024),
        ("GiB", "B", 1024**3),
        ("kB", "KB", 1),
        ("kW", "W", 1000),
        ("GB/s", "MB/s", 1000),
        ("reels", "reels", 1),
        ("GB", "Gb", None),
        ("GB/s", "GB", None),
        ("gb", "GB", None),
        ("GB", "", None),
        ("iB", "B", None),
    ],
)
def test_units_of_one_kind_have_a_ratio(unit: str, into: str, expected: float | None) -> None:
    found = unit_ratio(unit, into)
    assert (found and found[0] / found[1]) == expected


def parsed(kind: str, count: Any, unit: Any) -> Count:
    item = {"type": "node", "count": 1, "with": [{"type": kind, "count": count, "unit": unit}]}
    units = {kind: frozenset({unit}) for kind, unit in KNOWN.items()} | {"disk": frozenset({"GB", ""})}
    request = parse_jobspec({"resources": [item]}, lambda kind: units.get(kind, frozenset()))
    return request.resources[0].with_[0].count


@pytest.mark.parametrize(
    ("kind", "count", "unit", "expected"),
    [
        ("memory", 3, "GB", Count(3)),
        ("memory", 3, "", Count(3)),
        ("memory", 3, "TB", Count(3000)),
        ("memory", 1500, "MB", Count(2)),
        ("memory", 1, "GiB", Count(2)),
        ("memory", "4", "TB", Count(4000)),
        ("memory", {"min": 1, "max": 2}, "TB", Count(1000, 2000, "+", 1000)),
        ("memory", {"min": 1500, "max": 9999}, "MB", Count(2, 9)),
        ("memory", {"min": 1, "max": 2}, "MB", Count(1)),
        ("memory", {"min": 2, "max": 64, "operator": "*", "operand": 2}, "TB", Count(2000, 64000, "*", 2)),
        ("ssd", 1, "TB", Count(932)),
        ("power", 2, "kW", Count(2000)),
        ("tape", 2, "reels", Count(2)),
        ("nowhere", 2, "GB", Count(2)),
    ],
)
def test_a_count_is_no_less_in_the_unit_of_the_graph(kind: str, count: Any, unit: str, expected: Count) -> None:
    assert parsed(kind, count, unit) == expected


def test_a_count_without_an_end_has_none_in_another_unit() -> None:
    count = parsed("memory", {"min": 1500}, "MB")
    assert (count.low, count.best(10**9)) == (2, 10**9)


@pytest.mark.parametrize(
    ("kind", "count", "unit", "said"),
    [
        ("memory", 1, 3, "must be a string, not 3"),
        ("memory", 1, "m", "'m' cannot be converted: memory is counted in 'GB' here"),
        ("memory", 1, "kW", "'kW' cannot be converted: memory is counted in 'GB' here"),
        ("core", 1, "MB", "'MB' cannot be converted: core is counted without a unit here"),
        ("disk", 1, "GB", "disk is counted in several units here: '', 'GB'"),
        ("memory", "2,4", "TB", "these counts cannot be converted from 'TB': give them in 'GB'"),
        ("memory", {"min": 2, "max": 99, "operator": "^", "operand": 2}, "TB", "these counts cannot be converted"),
        ("memory", {"min": 2, "max": 9, "operator": "*", "operand": 2}, "MB", "these counts cannot be converted"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_field(kind: str, count: Any, unit: Any, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        parsed(kind, count, unit)
    assert str(refused.value).startswith(f"resources[0].with[0].unit: {said}")


def test_a_slot_has_no_unit() -> None:
    slot = {"type": "slot", "count": 1, "unit": "GB", "with": [{"type": "core", "count": 1}]}
    with pytest.raises(RequestError, match=r"resources\[0\].unit: slots are counted without"):
        parse_jobspec({"resources": [slot]})


@given(
    st.integers(1, 50),
    st.integers(0, 50),
    st.sampled_from("+*"),
    st.integers(1, 5),
    st.integers(1, 7),
    st.integers(0, 99),
)
def test_a_sequence_keeps_its_values(low: int, more: int, operator: str, operand: int, factor: int, room: int) -> None:
    count = Count(low, low + more, operator, operand)
    scaled = count.scaled(factor, 1)
    assert scaled is not None
    assert scaled.best(room * factor) == count.best(room) * factor


def graph() -> Graph:
    found = Graph()
    cluster = found.add("cluster", id=0)
    for i in range(2):
        node = found.add("node", cluster, id=i, rank=i)
        found.add("memory", node, id=i, size=8, unit="GB")
        found.add("disk", node, id=i, size=8, unit="GB" if i else "")
    return found.finish()


def test_a_graph_tells_the_units_of_a_type() -> None:
    found = graph()
    assert [sorted(found.units(kind)) for kind in ("memory", "disk", "node", "tape")] == [["GB"], ["", "GB"], [""], []]


@pytest.mark.parametrize(("megabytes", "fits"), [(1, True), (8000, True), (8001, False)])
def test_a_job_gets_the_memory_that_it_asked_for(megabytes: int, fits: bool) -> None:
    found = graph()
    slot = {"type": "slot", "count": 1, "with": [{"type": "memory", "count": megabytes, "unit": "MB"}]}
    request = parse_jobspec({"resources": [slot]}, found.units)
    allocation = Scheduler(found).allocate(1, request, 0).allocation
    assert (allocation is not None) is fits
