"""Priorities that follow from urgencies (RFC 30)."""

from __future__ import annotations

from headrace.formats.spec.urgency import PRIORITY_MAX, URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD, priority_of


def test_an_expedited_job_has_the_highest_priority_and_others_their_urgency() -> None:
    assert priority_of(URGENCY_EXPEDITE) == PRIORITY_MAX == 4294967295
    assert [priority_of(urgency) for urgency in (URGENCY_HOLD, 1, URGENCY_DEFAULT, 30)] == [0, 1, 16, 30]
