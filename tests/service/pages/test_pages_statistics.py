"""The page of statistics."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from typing import Any

import pytest

from headrace.formats.spec.job_state import COMPLETED, FAILED, INACTIVE
from headrace.service.pages.statistics import SPANS, facts, figures
from headrace.service.statistics import statistics
from html_pages import page, text_of
from waiting import until


def job(submit: float, run: float, end: float, **more: Any) -> dict[str, Any]:
    times = {"t_submit": submit, "t_run": run, "t_cleanup": end, "t_inactive": end}
    return {"state": INACTIVE, "result": COMPLETED, "ncores": 4, "nnodes": 1, **times, **more}


def test_the_charts_tell_their_numbers() -> None:
    jobs = [job(0, 10, 30), job(5, 25, 40, ncores=16, queue="batch", result=FAILED), job(6, 10, 40, ncores=16)]
    found = statistics(jobs, 0, 40, 10, 40)
    # 4 cores for 20 s, 16 for 15 s and for 30 s, of 40 s.
    texts = [fact.text for fact in facts(found, 32)]
    assert texts == ["3", "3", "1", "1 completed", "20 of 32", "20 s"]
    used, states, ended, waits = figures(found, 32, 2, "10 s")
    for figure in (used, states, ended, waits):
        assert ET.fromstring(figure.svg).get("role") == "img"
        assert all(len(row) == len(figure.columns) for row in figure.rows)
    assert used.rows[-1][1:] == ("0", "0") and used.rows[0][1:] == ("100", "100")
    assert [row[1:] for row in ended.rows][:2] == [("1", "0", "0", "0"), ("0", "0", "0", "0")]
    assert waits.rows == [
        ("all jobs, 3–4 cores", "1", "10 s", "10 s", "10 s"),
        ("all jobs, 9–16 cores", "1", "4 s", "4 s", "4 s"),
        ("batch, 9–16 cores", "1", "20 s", "20 s", "20 s"),
    ]
    titles = [one.text for one in ET.fromstring(waits.svg).iter("{http://www.w3.org/2000/svg}title")]
    assert "9–16, batch: 20 s" in titles and "Of 32 cores 20 were in use on average, 32 at most." in used.svg


def test_tiny_numbers_are_told_as_such() -> None:
    found = statistics([job(0, 0.0001, 0.0005, ncores=1), job(1, 1.003, 1.1, ncores=1)], 0, 4000, 2000, 4000)
    assert [fact.text for fact in facts(found, 4)][-2:] == ["less than 0.01 of 4", "less than 0.01 s"]
    used, states, _, waits = figures(found, 4, 1, "a bin")
    assert "Of 4 cores <0.01 were" in unescape(used.svg) and "at most <0.01 ran" in unescape(states.svg)
    cells = [cell for figure in (used, states, waits) for row in figure.rows for cell in row[1:]]
    assert "<0.01" in cells and not any(re.search(r"\.\d{3}|e-", cell) for cell in cells)


def test_without_jobs_and_without_resources_there_are_charts() -> None:
    found = figures(statistics([], 0, 40, 10, 40), 0, 0, "10 s")
    for figure in found:
        ET.fromstring(figure.svg)
    assert "No job started." in found[-1].svg and found[0].columns == ["From", "Cores (%)", "Nodes (%)"]


@pytest.mark.parametrize("query", ["", *(f"?span={span}" for span in SPANS)])
def test_each_span_counts_a_job_that_has_just_ended(client: Any, shared: Any, query: str) -> None:
    shared.flux("submit", "--wait", "true")
    until(lambda: re.search(r"Jobs ended \d+ Of these \d+ completed", text_of(client.get(f"/statistics{query}").text)))
    found = page(client, f"/statistics{query}")
    chosen = [attrs["href"] for _, attrs in found.elements if attrs.get("aria-current") == "true"]
    assert chosen == [f"/statistics{query or '?span=24h'}"]
    assert sum(tag == "svg" for tag, _ in found.elements) == 4
    assert client.get("/charts.css").headers["content-type"].startswith("text/css")
