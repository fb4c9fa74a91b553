"""The output of a job as server-sent events, on a real broker."""

from __future__ import annotations

import json
from typing import Any


def events(text: str) -> list[tuple[str, str]]:
    """The ids and texts of messages."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "id" in lines:
            found.append((lines["id"], json.loads(lines["data"])["text"]))
    return found


def test_output_comes_as_events_until_it_ends_and_goes_on_after_the_last(shared: Any, client: Any) -> None:
    id = shared.flux("submit", "sh", "-c", "echo one; printf 'two\\303\\244'").strip()
    answer = client.get(f"/jobs/{id}/output/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.text)
    assert "".join(text for _, text in found) == "one\ntwoä" and answer.text.endswith("event: end\ndata:\n\n")
    last = {"Last-Event-ID": found[0][0]}
    assert events(client.get(f"/jobs/{id}/output/events", headers=last).text) == found[1:]
    assert events(client.get(f"/jobs/{id}/output/events?read={found[0][0]}").text) == found[1:]
    assert client.get("/jobs/f1/output/events").status_code == 404
