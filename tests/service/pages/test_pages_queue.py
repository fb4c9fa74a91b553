"""The page of the queues, on a real broker."""

from __future__ import annotations

from typing import Any

from headrace.service.pages.queue import place
from html_pages import page, text_of
from waiting import until


def test_waiting_jobs_are_in_order_with_their_reasons(instance: Any, served: Any) -> None:
    client = served(instance)
    assert "No job waits." in text_of(client.get("/queue").text)
    instance.flux("submit", "--exclusive", "-N1", "-t", "10m", "sleep", "1000")
    for urgency in (10, 20):
        instance.flux("submit", f"--job-name=u{urgency}", f"--urgency={urgency}", "-N1", "true")
    until(
        lambda: len(page(client, "/queue").rows) == 3 and "insufficient resources" in page(client, "/queue").rows[1][-1]
    )
    rows = page(client, "/queue").rows
    assert [(row[0], row[2], row[4]) for row in rows[1:]] == [("1", "u20", "20"), ("2", "u10", "10")]
    assert "insufficient resources" in rows[1][-1]
    instance.flux("queue", "stop", "-m", "tidying up")
    until(lambda: "starts no jobs tidying up" in text_of(client.get("/queue").text))


def test_a_place_has_its_expected_start() -> None:
    raw = {"id": 1, "state": 8, "name": "n", "userid": 0, "t_submit": 1.0, "priority": 0xFFFFFFFF}
    found = place({**raw, "annotations": {"sched": {"t_estimate": 50.0, "reason_pending": "short"}}}, 10.0)
    assert (found.priority, found.reason, found.start) == ("first", "short", 50.0)
    assert place(raw, 10.0).start == 0.0
