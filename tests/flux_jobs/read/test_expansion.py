"""`$(NAME)` is expanded as the kubelet does it: the examples of the API's documentation, and what is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.flux_jobs.read.cluster import expand

VARIABLES = {"A": "a", "EMPTY": "", "REF": "$(A)", "a b": "blank"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "a"),
        ("x$(A)y$(A)", "xaya"),
        ("$(EMPTY)", ""),
        ("$(a b)", "blank"),
        # A value is not looked through again.
        ("$(REF)", "$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$($(A)", "$($(A)"),
        ("$()", "$()"),
        ("a$", "a$"),
        ("", ""),
        ("line\n$(A)\n", "line\na\n"),
    ],
)
def test_references_are_replaced_and_all_else_is_kept(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


@given(st.text())
def test_a_doubled_dollar_protects_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), VARIABLES) == text
