"""The files of a run: its working directory, the inputs copied into it, and the outputs kept from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headrace.experiments.file.templates import fill, values_of
from headrace.experiments.store.folder import RECORDS
from headrace.experiments.values import Cell, Experiment


def work_folder(experiment: Experiment, cell: Cell, work: Path) -> Path:
    """The program's working directory: the one that its file names, if this machine has it, or `work`."""
    wanted = cell.job.working_dir
    named = Path(experiment.folder, wanted)
    return named if wanted and named.is_dir() else work


def copy_inputs(experiment: Experiment, cell: Cell, home: Path) -> str:
    """Copy a cell's inputs, and fill its templates. Returns why that is not possible, "" if it was."""
    job = cell.job
    for name in (*job.inputs, *job.templates):
        source, to = Path(experiment.folder, name), home / name
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            if name in job.templates:
                to.write_text(fill(source.read_text(encoding="utf-8"), values_of(experiment, cell)), encoding="utf-8")
                to.chmod(source.stat().st_mode & 0o777)
            elif source.is_dir():
                shutil.copytree(source, to, dirs_exist_ok=True)
            elif not (to.exists() and to.samefile(source)):
                shutil.copy2(source, to)
        except KeyError as exc:
            return f"template {name}: has no value for {exc.args[0]}"
        except (OSError, UnicodeDecodeError, shutil.Error) as exc:
            return f"input {name}: {getattr(exc, 'strerror', None) or exc}"
    return ""


def take_outputs(cell: Cell, home: Path, record: Path, move: bool) -> str:
    """Move or copy a cell's outputs to its record. Returns why one cannot be kept. Raises OSError."""
    for pattern in cell.job.outputs:
        for path in sorted(home.glob(pattern)):
            name = path.relative_to(home)
            to = record / name
            if str(name) in RECORDS:
                return f"output {name}: has the name of a file that each run has; write it under another name"
            if to.exists():
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            if move and not path.is_symlink():
                os.rename(path, to)
            elif path.is_dir():
                shutil.copytree(path, to, symlinks=True)
            elif path.exists():
                # What a link points to is kept, because the work folder is deleted.
                shutil.copy2(path, to)
    return ""
