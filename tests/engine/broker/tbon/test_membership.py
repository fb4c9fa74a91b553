"""Reports of a subtree: what they collect, when there is one, and how they are read."""

from __future__ import annotations

import pytest

from headrace.engine.broker.tbon.membership import Membership, Report, decode
from headrace.formats.spec.idset import Idset


def test_changes_of_a_turn_are_one_report() -> None:
    members = Membership()
    members.change(online=[1, 2])
    members.change(offline=[2, 3], lost=[3])
    assert members.take("degraded") == (Report("degraded", Idset([1]), Idset([2, 3]), Idset([3])), True)
    assert members.take("degraded") == (None, False)


def test_a_rank_that_is_back_within_the_turn_is_not_lost() -> None:
    members = Membership()
    members.change(offline=[1], lost=[1])
    members.change(online=[1])
    assert members.take("full") == (Report("full", Idset([1]), Idset(), Idset()), True)


def test_a_change_of_the_status_alone_is_reported() -> None:
    members = Membership()
    assert members.take("partial")[0] is not None
    assert members.take("full") == (Report("full", Idset(), Idset(), Idset()), True)


def test_a_report_is_read_as_it_was_written() -> None:
    report = Report("partial", Idset([1, 2, 3]), Idset([5]), Idset())
    assert report.encode() == {"status": "partial", "online": "1-3", "offline": "5", "lost": ""}
    assert decode(report.encode()) == report


@pytest.mark.parametrize("body", [{"status": 1}, {"online": ["1"]}, {"lost": "x"}, {"offline": None}])
def test_an_invalid_report_is_a_value_error(body: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        decode(body)
