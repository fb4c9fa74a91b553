"""The report as a page: each section with its chart and its table, and nothing of a run's output as markup."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import sizes
from headrace.experiments.report.page import report_page
from headrace.experiments.report.study import Study, read
from headrace.experiments.report.text import text, width
from headrace.experiments.values import Cell, Run
from studies import SCALING, scaled, study, valued

SECTIONS = [
    *("Cells", "Scaling", "Phases", "Distribution of each metric", "Over time", "Cost against time"),
    *("Failures", "How to repeat it", "Provenance"),
]


def page_of(found: Study) -> str:
    return report_page(found, found.summary())


def parsed(page: str) -> ET.Element:
    """The page as XML, which it is but for elements without an end."""
    return ET.fromstring(re.sub(r"<(meta [^>]*)>", r"<\1/>", page).replace("<!doctype html>\n", ""))


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"<h2>(.*?)</h2>", page)
    return dict(zip(parts[1::2], parts[2::2]))


def test_each_section_has_its_charts_and_their_tables(tmp_path: Path) -> None:
    page = page_of(read(str(study(tmp_path))))
    found = sections(page)
    assert list(found) == SECTIONS
    counts = {name: (content.count("<svg "), content.count("<table")) for name, content in found.items()}
    assert counts == {
        "Cells": (0, 1),
        "Scaling": (2, 1),
        "Phases": (1, 1),
        "Distribution of each metric": (1, 1),
        "Over time": (1, 1),
        "Cost against time": (1, 1),
        "Failures": (0, 0),
        "How to repeat it": (0, 0),
        "Provenance": (0, 1),
    }
    assert "headrace experiment run experiment.yaml" in page and "Headrace 1.2.3 ran it" in page
    assert "interleaved, with seed 7" in page and "Loop time of ([0-9.]+)" in page
    titles = [one.text for one in parsed(page).iter("title")]
    assert titles == ["Experiment study"]


def test_nothing_is_loaded_and_no_script_runs(tmp_path: Path) -> None:
    page = page_of(read(str(study(tmp_path))))
    assert not re.search(r"<(script|link|img|iframe|object)|\bsrc=|url\(|@import|\bon\w+=", page)
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) == {"http://www.w3.org/2000/svg"}


NASTY = '<script>alert("x")</script> &amp; </pre> \N{RIGHT-TO-LEFT OVERRIDE} 漢字'


def test_names_outputs_and_provenance_are_text(tmp_path: Path) -> None:
    experiment = """
parameters: {input: ["</title><b>", "漢字 & co"]}
experiment: {size: 1}
jobs:
  job:
    command: "lmp '<script>{{input}}</script>'"
    repeats: 2
    metrics: {loop: {regex: "x(.*)", unit: "<i>s</i>"}}
"""

    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        if run.number == 2:
            return {"state": "failed", "reason": NASTY, "exit": 1, "started": 1.0, "ended": 2.0}
        return {**scaled(cell, run, position), "metrics": {"loop": 1.0}}

    path = study(tmp_path, experiment, outcome, provenance={"machine": {NASTY: NASTY}})
    for stderr in path.glob("runs/*/2/stderr"):
        stderr.write_bytes(
            b"\x1b[31mred\x1b[0m\x1b]0;title\x07 \xff\xfe\0\x08\n" + NASTY.encode() + b"\n\n" + b"y" * 9000
        )
    page = page_of(read(str(path)))
    assert "<script" not in page and "<b>" not in page and "<i>" not in page and "\x1b" not in page and "\0" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp;amp;" in page and "漢字" in page
    elements = {element.tag for element in parsed(page).iter()}
    assert {"b", "i", "script"}.isdisjoint(elements)


def test_provenance_has_what_sessions_learnt_of_their_targets(tmp_path: Path) -> None:
    path = study(tmp_path, provenance={"headrace": {"version": "1.2.3"}, "machine": {"cpu": "EPYC", "load": 0.5}})
    node = {"name": "n1", "labels": {"secret": "label"}, "system": {"kernelVersion": "6.1", "osImage": "Debian"}}
    facts = {"version": "v1.34.1", "nodes": [node], "images": {"lmp:1": "lmp@sha256:abc"}, "objects": [{"kind": "X"}]}
    contents = {"1": json.dumps({"targets": {"eks": {"facts": facts}}, "problems": []}), "2": "{", "x": ""}
    for name, content in contents.items():
        (path / f"sessions/{name}.json").write_text(content)
    rows = re.findall('<th scope="row">(.*?)</th><td>(.*?)</td></tr>', sections(page_of(read(str(path))))["Provenance"])
    assert rows == [
        ("headrace.version", "1.2.3"),
        ("machine.cpu", "EPYC"),
        ("machine.load", "0.5"),
        ("session 1.eks.version", "v1.34.1"),
        ("session 1.eks.nodes.n1", "6.1, Debian"),
        ("session 1.eks.images.lmp:1", "lmp@sha256:abc"),
    ]


VALUES = {
    "none completed": {},
    "one run each": {"lammps-1": [1.0] * 7},
    "equal": {f"lammps-{size}": [3.0] * 7 for size in (1, 2, 4)},
    "zero": {f"lammps-{size}": [0.0] * 7 for size in (1, 2, 4)},
    "negative": {f"lammps-{size}": [-1.0, -2, -3, -4, -5, -6, -7] for size in (1, 2, 4)},
    "both signs": {f"lammps-{size}": [-1.0, 2, -3, 4, -5, 6, -7] for size in (1, 2, 4)},
    "huge": {f"lammps-{size}": [1e308, 1.7e308, 1e300, -1.7e308, 1e307, 1e308, 1e308] for size in (1, 2, 4)},
    "tiny": {f"lammps-{size}": [5e-324, 1e-320, 1e-310, 1e-300, 1e-320, 1e-320, 1e-320] for size in (1, 2, 4)},
    "far apart": {"lammps-1": [1e-300] * 7, "lammps-2": [1e300] * 7, "lammps-4": [1.0] * 7},
    "almost equal": {f"lammps-{size}": [1e6 + 1e-9 * n for n in range(7)] for size in (1, 2, 4)},
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.filterwarnings("error")
def test_values_of_any_size_have_a_report(tmp_path: Path, name: str) -> None:
    found = read(str(study(tmp_path, SCALING, valued(VALUES[name]))))
    page = page_of(found)
    root = parsed(page)
    for element in root.iter():
        for key in ("d", "x", "y", "cx", "cy", "width", "height"):
            assert not re.search("nan|inf", element.get(key, "")), ET.tostring(element)
    assert text(found.summary()).count("\n") >= 7


@pytest.mark.parametrize("ended", [0, 1, 2, 20])
def test_an_experiment_that_is_running_has_a_report(tmp_path: Path, ended: int) -> None:
    path = study(tmp_path, ended=ended)
    # What a run that has begun leaves before it ends.
    (path / "runs/lammps-4/.7.work").mkdir(parents=True)
    (path / "runs/lammps-4/.7").mkdir()
    found = read(str(path))
    assert f"{ended} of 21 planned runs" in page_of(found) and f"{ended} of 21 planned runs" in text(found.summary())


def test_charts_have_the_first_cells_of_many_and_tables_have_all(tmp_path: Path) -> None:
    steps = ", ".join(map(str, range(60)))
    experiment = (
        SCALING.replace("[1, 2, 4]", "[1]").replace("repeats: 7", "repeats: 1") + f"parameters: {{steps: [{steps}]}}"
    )
    content = sections(page_of(read(str(study(tmp_path, experiment)))))["Distribution of each metric"]
    assert content.count("<tr>") == 61 and "The chart has the first 24 of 60 cells" in content
    assert len(re.findall('<text class="mark"[^>]*>lammps-1-steps=', content)) == 24


def test_a_table_in_the_terminal_is_aligned_for_wide_characters(tmp_path: Path) -> None:
    lines = text(read(str(study(tmp_path))).summary()).splitlines()
    head = next(line for line in lines if line.startswith("CELL"))
    row = next(line for line in lines if line.startswith("lammps-4"))
    assert row[head.index("METRIC") :].startswith("loop") and row[head.index("UNIT") :].startswith("s")
    assert [width(one) for one in ("ab", "漢字", "e\N{COMBINING ACUTE ACCENT}")] == [2, 4, 1]


@pytest.mark.soak
def test_a_report_of_many_runs_is_made_within_five_seconds(tmp_path: Path) -> None:
    """Of 10,000 runs, in seconds of the processor; of fewer, in as much less."""
    cells = sizes.size("reported_runs") // 100
    steps = ", ".join(map(str, range(cells)))
    experiment = SCALING.replace("[1, 2, 4]", "[1]").replace("repeats: 7", "repeats: 100")
    path = study(tmp_path, f"{experiment}parameters: {{steps: [{steps}]}}")
    began = time.process_time()
    page = page_of(read(str(path)))
    taken = time.process_time() - began
    assert f"{100 * cells:,} of {100 * cells:,} planned runs" in page
    # The import of scipy takes a second of it.
    assert taken < 1.5 + 3.5 * cells / 100
