"""Reads the folder of an experiment for its report. Nothing is locked, so that a running experiment can be reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from headrace.experiments.report.summary import Summary, summarize
from headrace.experiments.store.folder import Folder, read_object
from headrace.experiments.values import Experiment, Plan, Result


class Study(NamedTuple):
    """What the folder of an experiment has. `text` is its file; `provenance` is {} if it has none that can be read.

    `sessions` are the contents of sessions/N.json, the first one first.
    """

    folder: Folder
    experiment: Experiment
    plan: Plan
    results: list[Result]
    provenance: dict[str, Any]
    sessions: list[dict[str, Any]]
    text: str
    is_running: bool

    def summary(self) -> Summary:
        return summarize(self.experiment, self.plan, self.results, self.is_running)


def read(path: str) -> Study:
    """Read a folder. The results come from the runs' own files, which are complete even if the database is not.

    Raises FolderError.
    """
    folder = Folder(path)
    experiment, plan = folder.load()
    is_running = folder.is_locked()
    return Study(
        folder,
        experiment,
        plan,
        folder.results(plan),
        read_object(folder.provenance),
        folder.sessions(),
        _text(folder.path),
        is_running,
    )


def _text(path: Path) -> str:
    try:
        return (path / "experiment.yaml").read_text(errors="replace")
    except OSError:
        return ""
