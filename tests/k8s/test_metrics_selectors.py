"""Label selectors of autoscalers."""

from __future__ import annotations

import pytest

from headrace.k8s.metrics_api import selector

LABELS = {"minicluster": "hello", "team": "blue"}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("", True),
        ("minicluster=hello", True),
        ("minicluster == hello, team!=red", True),
        ("minicluster=other", False),
        ("minicluster in (a, hello),team notin (red)", True),
        ("minicluster notin (hello)", False),
        ("absent", False),
        ("!absent,team", True),
        ("absent!=x", True),
        ("absent notin (x,y)", True),
        ("absent=", False),
    ],
)
def test_a_selector_is_met_by_labels_or_not(text: str, met: bool) -> None:
    assert selector(text)(LABELS) is met


@pytest.mark.parametrize("text", ["a=b,", "a b", "a in b", "=x", "a=(b)", "(a)"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        selector(text)
