"""The ways to run the command of a MiniCluster."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """How the command is run."""

    INTERACTIVE = "interactive"  # no command: the instance stays until it is stopped
    BATCH = "batch"  # each line is a job of a batch script
    LAUNCHER = "launcher"  # the command submits by itself
    SUBMIT = "submit"  # the command is one job
