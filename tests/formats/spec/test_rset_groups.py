"""Set operations on grouped ranks."""

from headrace.formats.spec.rset_groups import (
    by_first_rank,
    children_of,
    cores_from_0,
    difference,
    intersection,
    united,
)

NOTHING = children_of({})


def cores(bits: int, gpus: int = 0):
    return children_of({"core": bits, "gpu": gpus})


def test_a_group_is_split_where_only_some_of_its_ranks_are_in_the_other_set() -> None:
    a, b = {cores(0b11): 0b1111}, {cores(0b01): 0b0110}
    assert united(a, b) == a
    assert difference(a, b) == {cores(0b11): 0b1001, cores(0b10): 0b0110}
    assert intersection(a, b) == {cores(0b01): 0b0110}


def test_a_rank_goes_with_its_last_child_but_one_that_never_had_any_is_still_in_both() -> None:
    assert difference({cores(0b1): 0b1}, {cores(0b1): 0b1}) == {}
    assert intersection({cores(0b1): 0b1}, {cores(0b10): 0b1}) == {}
    assert intersection({NOTHING: 0b11}, {NOTHING: 0b1}) == {NOTHING: 0b1}


def test_groups_that_become_equal_are_one() -> None:
    groups = {cores(0b11, 0b1): 0b1, cores(0b1100, 0b1): 0b10, cores(0, 0b1): 0b100}
    assert cores_from_0(groups) == {cores(0b11, 0b1): 0b11, cores(0, 0b1): 0b100}


def test_groups_are_listed_by_their_first_rank() -> None:
    assert by_first_rank({cores(0b1): 0b110, cores(0b10): 0b1001}) == [(cores(0b10), 0b1001), (cores(0b1), 0b110)]
