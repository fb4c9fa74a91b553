from __future__ import annotations

from typing import Any

from headrace.service.pages.job_list import MOST_OPENED, fold, opened
from headrace.service.pages.view import row


def jobs(*names: str, **changes: Any) -> list[tuple[dict[str, Any], Any]]:
    raws = [
        {"id": number << 24, "name": name, "userid": 0, "state": 8, "t_submit": 100.0 + number, "ntasks": 1, **changes}
        for number, name in enumerate(names, 1)
    ]
    return [(raw, row(raw, 200.0)) for raw in raws]


def sizes(found: list[Any]) -> list[tuple[str, int]]:
    return [(entry.rows[0].name, len(entry.rows)) for entry in found]


def test_equal_jobs_are_a_row_where_the_first_of_them_is() -> None:
    assert sizes(fold(jobs(*"abacaad"))) == [("a", 4), ("b", 1), ("c", 1), ("d", 1)]
    assert sizes(fold(jobs("a", "b", "a"))) == [("a", 1), ("a", 1), ("b", 1)]


def test_jobs_of_another_state_or_submission_are_not_equal() -> None:
    ended = jobs("a", "a", "a", state=64, result=1)
    late = jobs("a", "a", "a", t_submit=1000.0)
    assert sizes(fold([*jobs("a", "a", "a"), *ended, *late])) == [("a", 3), ("a", 3), ("a", 3)]


def test_an_opened_row_is_followed_by_its_jobs() -> None:
    entries = fold(jobs(*"xaaa", *"y"))
    found = opened(entries, entries[1].ids[2])
    assert sizes(found) == [("x", 1), ("a", 3), ("a", 1), ("a", 1), ("a", 1), ("y", 1)]
    assert [entry.is_open for entry in found] == [False, True, False, False, False, False]
    assert opened(entries, "f1") == opened(entries, "") == entries
    many = fold(jobs(*"a" * 1000, t_submit=1.0))
    assert len(opened(many, many[0].ids[999])) == 1 + MOST_OPENED
