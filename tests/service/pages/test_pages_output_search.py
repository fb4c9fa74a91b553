from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.stdio import Data
from headrace.service.pages import output_search
from headrace.service.pages.output_search import Search
from html_pages import page, text_of
from waiting import until


def searched(text: str, *parts: tuple[str, bytes]) -> Search:
    search = Search(text)
    for stream, data in parts:
        search.add(Data(stream, "0", data, False))
    search.finish()
    return search


def lines(search: Search) -> list[tuple[str, int, str]]:
    return [(one.stream, one.number, one.before + one.text + one.after) for one in search.found]


def test_lines_of_each_stream_are_numbered_and_pieces_are_put_together() -> None:
    parts = (("stdout", b"one\nTw"), ("stderr", b"two!\n"), ("stdout", b"o b\nthree\ntwo two"))
    assert lines(searched("two", *parts)) == [("stderr", 1, "two!"), ("stdout", 2, "Two b"), ("stdout", 4, "two two")]
    assert searched(".", *parts).found == [] and searched("", *parts).found == []


@given(st.binary(max_size=60), st.lists(st.integers(1, 20)), st.text("aA\u00e4.", min_size=1, max_size=2))
def test_pieces_do_not_change_what_is_found(data: bytes, cuts: list[int], text: str) -> None:
    parts = []
    left = data
    for cut in cuts:
        parts.append(("stdout", left[:cut]))
        left = left[cut:]
    expected = [
        ("stdout", number, line)
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1)
        if text.lower() in line.lower()
    ]
    assert lines(searched(text, *parts, ("stdout", left))) == expected


def test_long_lines_are_cut_around_the_text() -> None:
    (one,) = searched("x", ("stdout", b"a" * 500 + b"x" + b"b" * 500)).found
    assert one.before == "…" + "a" * 100 and one.after == "b" * 100 + "…"
    assert len(searched("x", *[("stdout", b"a" * 60_000)] * 9)._streams["stdout"].rest) < 1 << 17


def test_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched("x", ("stdout", b"x\n" * 101))
    assert len(found.found) == output_search.MOST_FOUND and found.more
    assert not searched("x", ("stdout", b"x\n" * 100)).more
    monkeypatch.setattr(output_search, "MOST_READ", 10)
    found = searched("x", ("stdout", b"a\n" * 5), ("stdout", b"x\n"))
    assert found.found == [] and found.more and found.ended


@pytest.mark.parametrize("running", [False, True])
def test_the_page_finds_what_it_does_not_show(shared: Any, client: Any, running: bool) -> None:
    script = f"echo 'Needle <1>'; yes filling | head -c 200000; echo end; {'exec sleep 1000' if running else 'true'}"
    id = shared.flux("submit", "sh", "-c", script).strip()
    until(lambda: "end" in client.get(f"/jobs/{id}/output.txt").text[-8:])
    if not running:
        shared.flux("job", "wait-event", id, "clean")
    whole = text_of(client.get(f"/jobs/{id}?find=needle").text)
    assert "are not shown" in whole and "1 line has needle" in whole
    rows = [row for row in page(client, f"/jobs/{id}?find=%20needle%20").rows if row[0] == "stdout"]
    assert rows == [["stdout", "1", "Needle <1>"]]
    assert "has nosuch" in text_of(client.get(f"/jobs/{id}?find=nosuch").text)
    assert "100 and more lines have" in text_of(client.get(f"/jobs/{id}?find=fill").text)
    assert "<b>" not in client.get(f"/jobs/{id}?find=<b>").text
    shared.flux("cancel", id) if running else None
