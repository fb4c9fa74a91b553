"""Folders of experiments as `headrace experiment run` leaves them, with results that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.experiments.file import read
from headrace.experiments.plan import plan
from headrace.experiments.store.folder import Folder
from headrace.experiments.values import Cell, Result, Run

SCALING = """
matrix: {size: [1, 2, 4]}
jobs:
  lammps:
    command: lmp -in in.reaxff
    repeats: 7
    metrics: {loop: {regex: "Loop time of ([0-9.]+)", unit: s}}
"""
# Fields of a Result, from a cell, a run and its place in the order.
Outcome = Callable[[Cell, Run, int], "dict[str, Any]"]


def scaled(cell: Cell, run: Run, position: int) -> dict[str, Any]:
    """Time falls as the size grows, with noise of 2 %."""
    loop = 12 / cell.size**0.9 * random.Random(position).gauss(1, 0.02)
    began = 1_800_000_000.0 + 15 * position
    phases = {"created": began, "scheduled": began + 0.1, "ready": began + 0.5, "program": began + 0.6}
    phases |= {"output": began + 1, "ended": began + 1 + loop}
    return {"metrics": {"loop": loop}, "phases": phases, "started": began, "ended": began + 1 + loop}


def valued(values: Mapping[str, list[float]], metric: str = "loop") -> Outcome:
    """The runs of each cell have these values in turn; a cell without values fails."""

    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        found = values.get(cell.id, [])
        if not found:
            return {"state": "failed", "reason": "exit 3", "exit": 3, "started": 100.0, "ended": 101.0}
        return {**scaled(cell, run, position), "metrics": {metric: found[run.number - 1]}}

    return outcome


def study(
    folder: Path,
    text: str = SCALING,
    outcome: Outcome = scaled,
    *,
    name: str = "study",
    ended: int | None = None,
    errors: Mapping[tuple[str, int], bytes] | None = None,
    provenance: dict[str, Any] | None = None,
) -> Path:
    """Make the folder NAME in `folder` for an experiment's file; `ended` limits its runs.

    `errors` are the standard errors of runs by (cell, number).
    """
    file = folder / f"{name}.yaml"
    file.write_text(text)
    experiment = read(str(file))
    planned = plan(experiment, 7)
    made = Folder(folder / name)
    made.create(text.encode(), experiment, planned, provenance or {"headrace": {"version": "1.2.3"}})
    cells = {cell.id: cell for cell in experiment.cells}
    for position, run in enumerate(planned.runs[:ended]):
        cell = cells[run.cell]
        facts = {"state": "completed", "node_seconds": 10.0 * cell.size, **outcome(cell, run, position)}
        result = Result(
            cell=cell.id,
            number=run.number,
            warmup=run.warmup,
            job=cell.job.name,
            target=cell.target,
            size=cell.size,
            machine=cell.machine,
            parameters=cell.parameters,
            position=position,
            **facts,
        )
        # Without the syncs of `Folder.commit`, which would take most of the time of a test with many runs.
        place = made.run_folder(run)
        place.mkdir(parents=True)
        (place / "result.json").write_bytes(msgspec.json.encode(result))
        (place / "stdout").write_text("Loop time of 1.5\n")
        (place / "stderr").write_bytes((errors or {}).get((cell.id, run.number), b""))
    return made.path
