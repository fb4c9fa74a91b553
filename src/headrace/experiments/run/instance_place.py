"""A place that is an instance which shares this machine's file system: runs are jobs in the experiment's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from headrace.experiments.values import Cell, Experiment
from headrace.wire.client.handle import Handle

from . import files, jobs
from .jobs import Ended, Jobspec


class InstancePlace:
    """An instance, reached at `uri`; `end` ends it. Raises OSError."""

    def __init__(
        self, uri: str, experiment: Experiment, jobspecs: Callable[[Cell], Jobspec], end: Callable[[], None]
    ) -> None:
        self._handle = Handle(uri)
        self._experiment = experiment
        self._jobspecs = jobspecs
        self._end = end

    def run(self, cell: Cell, record: Path, work: Path) -> Ended:
        home = files.work_folder(self._experiment, cell, work)
        problem = files.copy_inputs(self._experiment, cell, home)
        if problem:
            return Ended(state="failed", reason=problem)
        ended = jobs.follow(self._handle, jobs.in_folder(self._jobspecs(cell), str(home)), record)
        problem = files.take_outputs(cell, home, record, move=home == work)
        if problem and ended.state == "completed":
            ended.state, ended.reason = "failed", problem
        return ended

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._handle.close()
        self._end()
