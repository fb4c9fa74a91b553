"""The output of a job as the page shows it, and as server-sent events, on a real broker."""

from __future__ import annotations

import json
from typing import Any

from headrace.formats.spec.stdio import Data
from headrace.service.pages.following import Writers, pieces


def events(text: str) -> list[tuple[str, str]]:
    """The ids and texts of messages."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "id" in lines:
            piece = json.loads(lines["data"])
            found.append((lines["id"], "".join(text for _, text in piece["done"] + piece["line"])))
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


def written(*parts: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Pieces as writer, stream and text."""
    data = [Data(stream, rank, text.encode(), False) for stream, rank, text in parts]
    return [(piece.writer, piece.stream, "".join(run.text for run in piece.runs)) for piece in pieces(data)]


def test_each_task_has_a_line_of_its_own() -> None:
    assert written(
        *(("stdout", "0", "10%"), ("stdout", "1", "5%"), ("stderr", "0", "warning\n"), ("stdout", "0", "\r20%")),
        *(("stdout", "1", "\r100%\n"), ("stdout", "1", "done\n"), ("stdout", "0", "\r30%")),
    ) == [
        ("stdout 0", "stdout", "30%"),
        ("", "stdout", "100%\n"),
        ("", "stderr", "warning\n"),
        ("", "stdout", "done\n"),
    ]


def test_lines_of_one_stream_are_one_piece() -> None:
    assert written(*(("stdout", str(rank), "x\n") for rank in range(100))) == [("", "stdout", "x\n" * 100)]


def test_who_goes_on_after_a_line_that_has_not_ended_rewrites_it() -> None:
    writers = Writers()
    for text in (b"before\n", b"10", b"%\r20%"):
        writers.skip(Data("stdout", "0", text, False))
    assert writers.feed(Data("stdout", "0", b"\r30%", False)) == []
    assert writers.line("stdout 0") == [("", "30%")]
    writers.skip(Data("stdout", "1", b"y" * 100_000, False))
    writers.feed(Data("stdout", "1", b"x", False))
    assert sum(len(run.text) for run in writers.line("stdout 1")) <= 1024
