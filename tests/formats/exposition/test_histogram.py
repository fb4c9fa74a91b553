"""A histogram counts, and goes as JSON from the broker that keeps it to the program that shows it."""

from __future__ import annotations

import json

from headrace.formats.exposition.histogram import Histogram, from_object


def test_numbers_at_a_bound_belong_to_it() -> None:
    held = Histogram((1.0, 5.0))
    for number in (0.0, 1.0, 1.5, 5.0, 60.0):
        held.observe(number)
    assert held.cumulative() == [2, 4, 5] and held.sum == 67.5


def test_what_was_counted_survives_json() -> None:
    held = Histogram()
    held.observe(0.3)
    again = from_object(json.loads(json.dumps(held.as_object())))
    assert (again.bounds, again.cumulative(), again.sum) == (held.bounds, held.cumulative(), 0.3)
    again.observe(0.3)
    assert again.cumulative()[-1] == 2 and held.cumulative()[-1] == 1
