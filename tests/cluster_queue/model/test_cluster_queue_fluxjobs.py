from __future__ import annotations

import re

import pytest

from headrace.cluster_queue.model.fluxjobs import name_of, shown_position


def test_a_fluxjob_is_named_after_its_object_and_kind():
    assert name_of("Pod", "a") == "a-pod"
    assert name_of("Job", "a") == "a-job"
    assert name_of("Job", "a" * 249) == "a" * 249 + "-job"


def test_a_name_that_would_be_too_long_is_cut_and_told_apart():
    first, second = (name_of("Job", "a" * 250 + end) for end in ("b", "c"))
    assert len(first) == len(second) == 253
    assert first != second
    assert first.endswith("-job")


def test_a_group_whose_name_is_no_name_of_an_object_has_one_that_is():
    assert name_of("Group", "team.a-1") == "team.a-1-group"
    names = [name_of("Group", name) for name in ("Team_A", "team_a", "team-a", "a..b", "a.-b", "A_" * 31 + "9")]
    assert len(set(names)) == len(names)
    for name in (*names, name_of("Pod", "a." * 126 + "a"), name_of("Job", "a" * 237 + "." + "b" * 15)):
        assert len(name) <= 253
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name), name


@pytest.mark.parametrize(
    ("position", "shown"), [(1, 1), (50, 50), (57, 57), (123, 120), (129, 120), (1999, 1900), (10_000, 10_000)]
)
def test_positions_beyond_fifty_have_two_leading_digits(position, shown):
    assert shown_position(position) == shown
