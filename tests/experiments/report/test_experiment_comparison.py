"""Two experiments compared: which cells are the same, what differs, and what is said about it."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import sizes
from headrace.experiments.report.comparison import Comparison, compare
from headrace.experiments.report.comparison_page import comparison_page, comparison_text
from headrace.experiments.report.study import read
from headrace.experiments.report.summary import CellSummary, Summary
from headrace.experiments.stats.medians import median
from headrace.experiments.values import Cell, Run
from seeds import seed
from studies import SCALING, scaled, study


def summary(folder: Path, name: str, factors: dict[int, float], text: str = SCALING) -> Summary:
    """An experiment whose times are multiplied by a factor for each size."""

    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        found = scaled(cell, run, position + 1000 * len(name))
        loop = found["metrics"]["loop"] * factors.get(cell.size, 1.0)
        return {**found, "metrics": {"loop": loop, "rate": 100 / loop}}

    return read(str(study(folder, text, outcome, name=name))).summary()


def sentence(found: Comparison) -> str:
    return found.verdicts[0].sentence


def test_a_shorter_time_is_better_and_a_longer_one_worse(tmp_path: Path) -> None:
    first = summary(tmp_path, "first", {})
    found = compare(first, summary(tmp_path, "second", {1: 0.8, 2: 0.9, 4: 0.85}))
    assert [pair.verdict for pair in found.pairs] == ["better"] * 3
    for pair, factor in zip(found.pairs, (0.8, 0.9, 0.85)):
        assert pair.interval is not None and pair.ratio is not None and pair.p is not None
        assert pair.interval[0] < factor < pair.interval[1] and pair.interval[0] < pair.ratio < pair.interval[1]
        # The least p-value of 7 against 7 runs, 2 of C(14, 7) orders, for three tests.
        assert pair.p == pytest.approx(3 * 2 / 3432)
    assert sentence(found).startswith("loop: better. Of 3 cells, the second experiment is better in 3 (medians -")
    found = compare(first, summary(tmp_path, "slower", {1: 1.3, 2: 1.0, 4: 0.7}))
    assert [pair.verdict for pair in found.pairs] == ["worse", "cannot say", "better"]
    assert sentence(found).startswith("loop: mixed. Of 3 cells, the second experiment is better in 1 (median -")
    assert sentence(found).endswith("(1 without a significant difference).")


def test_a_higher_rate_is_better(tmp_path: Path) -> None:
    text = SCALING.replace("unit: s}", 'unit: s}, rate: {regex: "x(.*)", better: higher}')
    found = compare(summary(tmp_path, "first", {}, text), summary(tmp_path, "second", {1: 0.8, 2: 0.8, 4: 0.8}, text))
    assert {pair.verdict for pair in found.pairs} == {"better"}
    assert {pair.metric: pair.ratio > 1 for pair in found.pairs if pair.ratio} == {"loop": False, "rate": True}
    rate = compare(summary(tmp_path, "third", {}, text), summary(tmp_path, "fourth", {}, text), "rate")
    assert {pair.metric for pair in rate.pairs} == {"rate"} and len(rate.verdicts) == 1


def test_equal_experiments_cannot_be_told_apart(tmp_path: Path) -> None:
    found = compare(summary(tmp_path, "first", {}), summary(tmp_path, "second", {}))
    assert {pair.verdict for pair in found.pairs} == {"cannot say"}
    assert sentence(found) == (
        "loop: cannot say. Of 3 cells, none shows which is better (3 without a significant difference)."
    )


def test_few_runs_cannot_tell(tmp_path: Path) -> None:
    few = SCALING.replace("repeats: 7", "repeats: 4")
    found = compare(summary(tmp_path, "first", {}), summary(tmp_path, "second", {1: 0.1, 2: 0.1, 4: 0.1}, few))
    assert {(pair.p, pair.interval, pair.verdict) for pair in found.pairs} == {(None, None, "cannot say")}
    assert all(pair.ratio == pytest.approx(0.1, rel=0.1) for pair in found.pairs)
    assert "(3 with fewer than five runs on a side)" in sentence(found)
    assert "too few runs" in comparison_text(found)


def test_cells_are_the_same_by_job_size_and_parameters(tmp_path: Path) -> None:
    def named(machine: str, sizes: str) -> str:
        return SCALING.replace("size: [1, 2, 4]", f"size: {sizes}, machine: [{machine}]")

    one, other = summary(tmp_path, "a", {}, named("m5", "[1, 2]")), summary(tmp_path, "bb", {}, named("c7", "[2, 4]"))
    found = compare(one, other)
    assert [pair.cell for pair in found.pairs] == ["lammps-2"]
    assert (found.only_first, found.only_second) == (("lammps-1",), ("lammps-4",))
    assert "Only in the second experiment: lammps-4." in comparison_text(found)
    # With two machines, job and size are ambiguous, so the machine counts, too.
    both = summary(tmp_path, "ccc", {}, named("m5, c7", "[2, 4]"))
    assert [pair.cell for pair in compare(both, other).pairs] == ["lammps-2-c7", "lammps-4-c7"]


def test_experiments_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first = summary(tmp_path, "first", {})
    other = summary(tmp_path, "other", {}, SCALING.replace("lammps", "amg"))
    with pytest.raises(ValueError, match="no cell in common"):
        compare(first, other)
    with pytest.raises(ValueError, match='the metric "speed"; both have: loop'):
        compare(first, first, "speed")


@pytest.mark.soak
def test_chance_alone_is_rarely_called_a_difference(tmp_path: Path) -> None:
    """Holm's correction: of comparisons of equal experiments, at most 5 % find a cell better or worse."""
    base = summary(tmp_path, "base", {}, SCALING.replace("[1, 2, 4]", "[1, 2, 3, 4, 5, 6, 7, 8]"))
    dice, rounds = random.Random(seed()), sizes.size("equal_experiments")

    def drawn() -> Summary:
        cells = (_redrawn(cell, [dice.lognormvariate(0, 0.1) for _ in range(7)]) for cell in base.cells)
        return replace(base, cells=tuple(cells))

    wrong = sum(compare(drawn(), drawn()).verdicts[0].verdict != "cannot say" for _ in range(rounds))
    assert wrong <= 0.05 * rounds + 3 * (0.05 * 0.95 * rounds) ** 0.5


def _redrawn(cell: CellSummary, values: list[float]) -> CellSummary:
    sample = replace(cell.samples["loop"], values=tuple(values), median=median(values))
    return replace(cell, samples={"loop": sample})


def test_the_page_has_a_chart_a_table_and_what_differs_between_the_machines(tmp_path: Path) -> None:
    found = compare(summary(tmp_path, "first", {}), summary(tmp_path, "<second>", {1: 0.8}))
    same = {"machine": {"cpu": "EPYC", "cores": 2}}
    page = comparison_page(found, (same, {"machine": {"cpu": "<Xeon>", "cores": 2}}))
    root = ET.fromstring(page[page.index("<body>") : page.index("</html>")])
    assert len(list(root.iter("{http://www.w3.org/2000/svg}svg"))) == 1
    rows = [[cell.text for cell in row] for row in root.iter("tr")]
    assert [row[0] for row in rows[1:4]] == ["lammps-1", "lammps-2", "lammps-4"] and rows[1][-1] == "better"
    assert rows[-1] == ["machine.cpu", "EPYC", "<Xeon>"] and "machine.cores" not in page
