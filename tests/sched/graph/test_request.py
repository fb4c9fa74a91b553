"""Counts of RFC 14 and refusals that name the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.request import Count, RequestError, parse_jobspec, total_needs


@given(st.integers(1, 8), st.integers(0, 60), st.sampled_from("+*^"), st.integers(1, 4), st.integers(0, 80))
def test_best_is_the_largest_value_of_the_sequence_that_is_available(
    low: int, more: int, operator: str, operand: int, available: int
) -> None:
    high = low + more
    values = [low]
    while True:
        last = values[-1]
        following = {"+": last + operand, "*": last * operand, "^": last**operand}[operator]
        if following > high or following <= last:
            break
        values.append(following)
    expected = max((value for value in values if value <= available), default=0)
    assert Count(low, high, operator, operand).best(available) == expected


@pytest.mark.parametrize(
    ("count", "available", "expected"),
    [
        ("4", 9, 4),
        ("2-7:2", 9, 6),
        ("2-64:2:^", 99, 16),
        ("3+", 1000, 1000),
        ("2+:3:*", 20, 18),
        ("1,3,5-6", 4, 3),
        ("[1,3,5-6]", 9, 6),
        ("3,5", 2, 0),
        # RFC 14: without a max there is none.
        ({"min": 2}, 1000, 1000),
        ({"min": 2, "operator": "*", "operand": 2}, 1000, 512),
    ],
)
def test_counts_may_be_ranges_sets_and_without_an_end(count: Any, available: int, expected: int) -> None:
    request = parse_jobspec({"resources": [{"type": "node", "count": count}]}).resources[0]
    assert request.count.best(available) == expected


def test_counts_are_equal_by_what_they_allow() -> None:
    def counts(*given: Any) -> list[Any]:
        return [r.count for r in parse_jobspec({"resources": [{"type": "n", "count": c} for c in given]}).resources]

    assert len(set(counts(4, "4", {"min": 4, "max": 4}))) == 1
    assert len(set(counts("1-9", "1-9:2", "1-9:2:*", "1,9", "1+"))) == 5


def test_needs_multiply_down_the_tree() -> None:
    core = {"type": "core", "count": 4}
    slot = {"type": "slot", "count": 2, "label": "t", "with": [core]}
    request = parse_jobspec({"resources": [{"type": "node", "count": {"min": 3, "max": 9}, "with": [slot]}]})
    assert total_needs(request.resources) == {"node": 3, "core": 24}


@pytest.mark.parametrize(
    ("jobspec", "field"),
    [
        ([], "jobspec"),
        ({}, "resources"),
        ({"resources": [{"count": 1}]}, r"resources\[0\].type"),
        ({"resources": [{"type": "node"}]}, r"resources\[0\].count: missing"),
        (
            {"resources": [{"type": "node", "count": 1, "with": [{"type": "core", "count": 1, "exclusve": True}]}]},
            r"resources\[0\].with\[0\]: Unrecognized key in resource mapping: 'exclusve'",
        ),
        ({"resources": [{"type": "node", "count": 0}]}, "at least 1"),
        ({"resources": [{"type": "node", "count": True}]}, "count"),
        ({"resources": [{"type": "node", "count": "4-2"}]}, r"resources\[0\].count: invalid range '4-2'"),
        ({"resources": [{"type": "node", "count": "0-4"}]}, "at least 1"),
        ({"resources": [{"type": "node", "count": "many"}]}, "invalid count 'many'"),
        ({"resources": [{"type": ["x"] * 10**6, "count": 1}]}, r"type: must be a string, not .{5,60}$"),
        ({"resources": [{"type": "node", "count": {"min": 3, "max": 2}}]}, "count.max"),
        ({"resources": [{"type": "node", "count": {"min": 1, "operator": "-"}}]}, "count.operator"),
        ({"resources": [{"type": "node", "count": {"min": 1, "operand": 0}}]}, "count.operand"),
        ({"resources": [{"type": "slot", "count": 1}]}, "slot must contain"),
        ({"resources": [{"type": "node", "count": 1, "exclusive": 1}]}, "exclusive"),
        ({"resources": [{"type": "node", "count": 1}], "attributes": {"system": {"duration": -1}}}, "duration"),
        ({"resources": [{"type": "node", "count": 1}], "attributes": 3}, "attributes: must be"),
        ({"resources": [{"type": "node", "count": 1}], "attributes": {"system": [1]}}, "attributes.system: must be"),
        ({"resources": [{"type": "node", "count": -1}]}, "at least 1, not -1"),
        ({"resources": [{"type": "node", "count": 1.5}]}, "positive integer"),
        ({"resources": [{"type": "node", "count": 1}] * 600}, "more than 512 resources"),
    ],
)
def test_bad_jobspec_is_refused_with_the_field(jobspec: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field):
        parse_jobspec(jobspec)


def test_top_is_the_last_value_of_the_sequence_not_its_bound() -> None:
    assert Count(2, 64, "^", 4).top == 16
    assert Count(1, 64, "*", 3).top == 27
    assert Count(1, 10, "+", 4).top == 9
    assert Count(7).top == 7


def test_a_power_beyond_all_bounds_is_not_worked_out() -> None:
    assert Count(2, 2**62, "^", 10**9).best(2**62) == 2
    assert Count(2, 2**62, "^", 2).best(300) == 256


def test_endless_nesting_is_refused() -> None:
    item: dict[str, Any] = {"type": "core", "count": 1}
    for _ in range(100):
        item = {"type": "node", "count": 1, "with": [item]}
    with pytest.raises(RequestError, match="64 levels"):
        parse_jobspec({"resources": [item]})
