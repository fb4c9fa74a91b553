"""The part of a constraint that excludes every node, and how it is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import constraint
from headrace.formats.spec.constraint_why import excluding

# Rank, host, properties.
NODES = [(0, "a0", {"batch"}), (1, "a1", {"batch", "big"}), (2, "a2", {"debug"})]


def some_match(obj: dict[str, Any]) -> bool:
    return any(constraint.match(obj, rank, host, properties) for rank, host, properties in NODES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("foo", "no node has property foo"),
        ("batch foo", "no node has property foo"),
        ("big debug", "no node has property big and property debug"),
        ("batch host:a2", "no node has property batch and host a2"),
        ("host:a2 -rank:2", "no node has host a2 and not (rank 2)"),
        ("debug ^debug", "no node has property debug and no property debug"),
        ("host:b[1-2]", "no node has host b[1-2]"),
        ("rank:7", "no node has rank 7"),
        ("foo or bar", "no node has property foo, no node has property bar"),
        ("not (batch or debug)", "every node has (property batch or property debug)"),
        ("-rank:0-2", "every node has rank 0-2"),
        ("batch or foo", ""),
    ],
)
def test_the_smallest_part_that_excludes_all_is_named(text: str, why: str) -> None:
    assert excluding(constraint.parse(text), some_match) == why


CONSTRAINTS = st.recursive(
    st.one_of(
        st.lists(st.sampled_from(["batch", "big", "debug", "foo", "^big"]), max_size=2).map(
            lambda x: {"properties": x}
        ),
        st.sampled_from([{"hostlist": ["a0"]}, {"hostlist": ["b"]}, {"ranks": ["1-2"]}, {"ranks": []}]),
    ),
    lambda inner: st.dictionaries(st.sampled_from(["and", "or", "not"]), st.lists(inner, max_size=3), max_size=2),
)


@given(CONSTRAINTS)
def test_there_is_a_reason_if_and_only_if_nothing_matches(obj: dict[str, Any]) -> None:
    assert bool(excluding(obj, some_match)) == (not some_match(obj))
