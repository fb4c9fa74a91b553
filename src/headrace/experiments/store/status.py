"""How far an experiment is, from its folder alone."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from msgspec import Struct

from headrace.experiments.values import Result

from .folder import Folder, Known

# Failed runs that a status lists, the last ones.
_FAILURES = 10


class CellStatus(Struct, frozen=True, kw_only=True):
    """Numbers of a cell's runs, with warm-up runs. Failed runs are done, too."""

    cell: str
    planned: int
    done: int
    failed: int
    running: int


class Status(Struct, frozen=True, kw_only=True):
    """Numbers of runs. `state` is "interrupted" if runs are left and no process runs them.

    `problems` are the sentences with which the last session ended. `failures` are the last failed runs, 10 at most.
    Cells that repeat until their interval is narrow may need fewer runs than planned; they count as planned.
    """

    name: str
    state: Literal["running", "interrupted", "complete"]
    planned: int
    done: int
    failed: int
    cells: tuple[CellStatus, ...]
    failures: tuple[Result, ...]
    problems: tuple[str, ...]


def status(folder: Folder) -> Status:
    """Raises FolderError."""
    return read(folder)[0]


def read(folder: Folder, known: Known | None = None) -> tuple[Status, list[Result]]:
    """The status, and the results of all runs that have ended, as `Folder.results`. Raises FolderError."""
    experiment, plan = folder.load()
    is_locked = folder.is_locked()
    results = folder.results(plan, known)
    planned = Counter(run.cell for run in plan.runs)
    done = Counter(result.cell for result in results)
    failed = Counter(result.cell for result in results if result.state != "completed")
    running = Counter(run.cell for run in folder.running()) if is_locked else Counter()
    cells = tuple(
        CellStatus(
            cell=cell.id,
            planned=planned[cell.id],
            done=done[cell.id],
            failed=failed[cell.id],
            running=running[cell.id],
        )
        for cell in experiment.cells
    )
    # Without a running process, a cell that needs no more runs looks like one that was interrupted before them.
    least = {cell.id: cell.repeats.warmup + cell.repeats.least for cell in experiment.cells}
    is_complete = all(done[cell] >= least[cell] for cell in planned)
    found = Status(
        name=experiment.name,
        state="running" if is_locked else "complete" if is_complete else "interrupted",
        planned=len(plan.runs),
        done=len(results),
        failed=failed.total(),
        cells=cells,
        failures=tuple(result for result in results if result.state != "completed")[-_FAILURES:],
        problems=() if is_locked else tuple(_last(folder.sessions()).get("problems", ())),
    )
    return found, results


def _last(sessions: list[dict[str, Any]]) -> dict[str, Any]:
    return sessions[-1] if sessions else {}
