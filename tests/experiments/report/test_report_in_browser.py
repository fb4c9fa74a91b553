"""The pages of an experiment in a real browser: Debian's Chromium, driven by Playwright.

In both themes, as wide as a phone and as a screen: nothing is loaded, nothing is wider than the page, text in charts
has a size that can be read, and axe-core finds no violation.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

import sizes
from headrace.cli.experiment.main import main
from headrace.experiments.values import Cell, Run
from studies import scaled, study

CHROMIUM = shutil.which("chromium")
VIEWS = [("dark", 390), ("light", 1280), ("light", 360), ("light", 390), ("dark", 1280)]
RICH = """
targets: {eks: {type: kubernetes, price: {hpc6a: 2.88, m5: 0.4}}, here: {type: local}}
matrix: {size: [1, 4], machine: [hpc6a, m5]}
parameters: {input: [reaxff, lj]}
jobs:
  lammps:
    command: lmp -in in.{{input}}
    repeats: 5
    metrics:
      loop: {regex: "Loop time of ([0-9.]+)", unit: s}
      performance: {regex: "Performance: ([0-9.]+)", unit: timesteps/s, better: higher}
"""

pytestmark = [pytest.mark.soak, pytest.mark.skipif(not CHROMIUM, reason="no chromium")]


def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
    found = scaled(cell, run, position)
    loop = found["metrics"]["loop"] * (1.7 if cell.machine == "m5" else 1.0) * (1.5 if position % 37 == 5 else 1.0)
    cost = cell.size * loop / 3600 * (2.88 if cell.machine == "hpc6a" else 0.4)
    if position % 23 == 0:
        return {**found, "metrics": {}, "state": "failed", "reason": f"exit 134: {'a long reason, ' * 20}", "exit": 134}
    return {**found, "metrics": {"loop": loop, "performance": 100 / loop}, "cost": cost}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studies")
    provenance = {"machine": {"cpu": "AMD EPYC"}, "environment": {"PATH": "/usr/bin:" * 80}}
    path = str(
        study(folder, RICH, outcome, errors={("lammps-1-hpc6a-eks-input=reaxff", 1): b"x" * 500}, provenance=provenance)
    )
    other = str(study(folder, RICH, scaled, name="other"))
    found = {name: folder / f"{name}.html" for name in ("report", "comparison")}
    assert main(["report", path, "--html", str(found["report"])]) == 0
    assert main(["compare", path, other, "--html", str(found["comparison"])]) == 0
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("number", range(sizes.size("views")))
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_each_page_can_be_read_by_everybody(pages: dict[str, Path], browser: Browser, name: str, number: int) -> None:
    theme, width = VIEWS[number]
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 800})
    page = context.new_page()
    wrong: list[str] = []
    page.on("request", lambda asked: asked.url == pages[name].as_uri() or wrong.append(f"asks for {asked.url}"))
    page.on("console", lambda said: wrong.append(said.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(pages[name].as_uri())
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = page.evaluate("[...document.querySelectorAll('svg text')].map(one => one.getBoundingClientRect().height)")
    # The height of a line, of letters of about two thirds of it.
    assert heights and min(heights) >= 10
    outside = page.evaluate(
        "[...document.querySelectorAll('svg text')].filter(one => { const box = one.getBoundingClientRect(), "
        "frame = one.closest('svg').getBoundingClientRect(); return box.left < frame.left - 1 || "
        "box.right > frame.right + 1; }).map(one => one.textContent)"
    )
    violations = Axe().run(page).response["violations"]
    shown = [(one["id"], one["help"], [node["html"] for node in one["nodes"]][:3]) for one in violations]
    context.close()
    assert not shown and not wrong and not outside, (shown, wrong, outside)
