"""The folder of an experiment: what is planned, what has run, and who writes it.

    experiment.yaml  the file as it was read
    plan.json        the runs in their order, and the experiment with all parameters filled in
    provenance.json  versions and machine, when the experiment was created
    runs/CELL/N/     one run: stdout, stderr, eventlog, R, result.json, and its output files
    report.html      the report, written when a `run` or `resume` ends
    results.sqlite   a row for each run, derived from the files result.json
    sessions/N.json  each `run` or `resume`: when, on which targets, and how it ended
    lock             held by the process that writes; names what a killed one may have left behind

Every file is written under a temporary name, synced and renamed. A run's whole folder is written as `runs/CELL/.N` and
then renamed, so `runs/CELL/N` exists only if the run has ended and its result is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headrace.experiments.values import Experiment, Plan, Result, Run

STDOUT, STDERR, EVENTLOG, R, RESULT = RECORDS = ("stdout", "stderr", "eventlog", "R", "result.json")
REPORT = "report.html"
# `is_locked` of another process holds a shared lock for less than this, in seconds.
_LOOKED_AT = 0.2


class FolderError(Exception):
    """The folder cannot be used; the message names it and says why."""


class _Planned(Plan, frozen=True, kw_only=True):
    """The content of `plan.json`: a Plan, and the experiment that it is for."""

    experiment: Experiment


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the lock: the writing process, and what has to be ended if it was killed.

    `workspace` is the folder of its local instances, `token` part of the names of its jobs and MiniClusters.
    """

    pid: int
    host: str
    workspace: str
    token: str


# Results that were read, by the folders of their runs, with the modification times of these folders. A run's folder
# does not change once it has its name.
Known = dict[str, tuple[int, Result]]


class Folder:
    """The folder of an experiment. Methods raise FolderError, also for what the file system refuses."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    @property
    def database(self) -> Path:
        return self.path / "results.sqlite"

    @property
    def provenance(self) -> Path:
        return self.path / "provenance.json"

    def create(self, text: bytes, experiment: Experiment, plan: Plan, provenance: dict[str, Any]) -> None:
        """Make the folder of a new experiment; `text` is its file. `plan.json` is written last."""
        with self._errors():
            (self.path / "runs").mkdir(parents=True, exist_ok=True)
            (self.path / "sessions").mkdir(exist_ok=True)
            write_file(self.path / "experiment.yaml", text)
            write_file(self.provenance, _pretty(provenance))
            planned = _Planned(seed=plan.seed, order=plan.order, runs=plan.runs, experiment=experiment)
            write_file(self.path / "plan.json", _pretty(planned))

    def exists(self) -> bool:
        """True if an experiment was created here."""
        return (self.path / "plan.json").exists()

    def load(self) -> tuple[Experiment, Plan]:
        """The experiment and its plan."""
        if not self.exists():
            raise FolderError(f"{self.path}: is not the folder of an experiment: it has no plan.json")
        with self._errors():
            text = (self.path / "plan.json").read_bytes()
        try:
            planned = msgspec.json.decode(text, type=_Planned)
        except (msgspec.MsgspecError, ValueError) as exc:
            raise FolderError(f"{self.path}/plan.json: {exc}") from None
        for cell in {run.cell for run in planned.runs}.union(cell.id for cell in planned.experiment.cells):
            if "/" in cell or "\0" in cell or cell in ("", ".", ".."):
                raise FolderError(f"{self.path}/plan.json: the cell {cell!r} is not a name of a folder")
        return planned.experiment, Plan(seed=planned.seed, order=planned.order, runs=planned.runs)

    # -- runs

    def run_folder(self, run: Run) -> Path:
        return self.path / "runs" / run.cell / str(run.number)

    def begin(self, run: Run) -> tuple[Path, Path]:
        """Empty folders for a run that begins: for its record, which `commit` renames, and for the program."""
        record, work = self._unfinished(run)
        with self._errors():
            for folder in (record, work):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
        return record, work

    def commit(self, run: Run, result: Result) -> None:
        """Keep a run that has ended: from now on it is counted."""
        record, work = self._unfinished(run)
        with self._errors():
            _sync_files(record)
            write_file(record / RESULT, _pretty(result))
            os.rename(record, self.run_folder(run))
            sync_folder(record.parent)
        shutil.rmtree(work, ignore_errors=True)

    def abandon(self, run: Run) -> None:
        """Delete what a run left that did not end."""
        for folder in self._unfinished(run):
            shutil.rmtree(folder, ignore_errors=True)

    def _unfinished(self, run: Run) -> tuple[Path, Path]:
        cell = self.path / "runs" / run.cell
        return cell / f".{run.number}", cell / f".{run.number}.work"

    def running(self) -> list[Run]:
        """Runs that have begun and not ended. If no process holds the lock, they were interrupted."""
        found = (self.path / "runs").glob("*/.*.work")
        names = [(one.parent.name, one.name[1:].partition(".")[0]) for one in found]
        return [Run(cell=cell, number=int(number)) for cell, number in sorted(names) if number.isdigit()]

    def results(self, plan: Plan, known: Known | None = None) -> list[Result]:
        """The results of all runs that have ended, in the order in which they began.

        Results in `known` are not read again; those that are read are added to it.
        """
        out = []
        known = {} if known is None else known
        # Not `run_folder`: with many runs, making a Path of each takes longer than reading the files.
        runs = str(self.path / "runs")
        for run in plan.runs:
            path = f"{runs}/{run.cell}/{run.number}"
            try:
                out.append(_result(path, known))
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise self._error(exc) from None
            except (msgspec.MsgspecError, ValueError) as exc:
                raise FolderError(f"{path}/{RESULT}: {exc}; delete {path} to run it again") from None
        return sorted(out, key=lambda result: (result.position, result.cell, result.number))

    def add_session(self, session: dict[str, Any]) -> None:
        """Write a file about a session that has ended."""
        with self._errors():
            names = [int(one.stem) for one in (self.path / "sessions").glob("*.json") if one.stem.isdigit()]
            write_file(self.path / "sessions" / f"{max(names, default=0) + 1}.json", _pretty(session))

    def sessions(self) -> list[dict[str, Any]]:
        """What `add_session` wrote, the first session first. Files that cannot be read count as {}."""
        paths = [path for path in (self.path / "sessions").glob("*.json") if path.stem.isdigit()]
        return [read_object(path) for path in sorted(paths, key=lambda path: int(path.stem))]

    # -- the lock

    @contextlib.contextmanager
    def locked(self, owner: Owner) -> Iterator[Owner | None]:
        """Hold the lock. Yields the former owner if it was killed, whose remains have to be ended."""
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _lock(fd):
                raise FolderError(f"{self.path}: {self._holder(fd)} runs this experiment: wait for its end")
            former = _owner(fd)
            with self._errors():
                self._set_owner(fd, msgspec.json.encode(owner))
            yield former
            with self._errors():
                self._set_owner(fd, b"")
        finally:
            os.close(fd)

    def is_locked(self) -> bool:
        """True if a process is running the experiment."""
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def _holder(self, fd: int) -> str:
        owner = _owner(fd)
        return f"process {owner.pid} on {owner.host}" if owner else "another process"

    def _set_owner(self, fd: int, text: bytes) -> None:
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
        os.fsync(fd)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise self._error(exc) from None

    def _error(self, exc: OSError) -> FolderError:
        return FolderError(f"{exc.filename or self.path}: {exc.strerror}")


def _result(run: str, known: Known) -> Result:
    """The result in the folder of a run. Raises FileNotFoundError, OSError, MsgspecError, ValueError."""
    modified = os.stat(run).st_mtime_ns
    before = known.get(run)
    if before is None or before[0] != modified:
        with open(f"{run}/{RESULT}", "rb") as file:
            before = known[run] = modified, msgspec.json.decode(file.read(), type=Result)
    return before[1]


def _lock(fd: int) -> bool:
    """Take the exclusive lock; False if a process that runs the experiment holds it."""
    deadline = time.monotonic() + _LOOKED_AT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _owner(fd: int) -> Owner | None:
    text = os.pread(fd, 1 << 16, 0)
    try:
        return msgspec.json.decode(text, type=Owner)
    except msgspec.MsgspecError:
        return None


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write_file(path: Path, data: bytes) -> None:
    """Write a file so that it is complete whenever it exists. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_folder(path.parent)


def _sync_files(folder: Path) -> None:
    """Have all files of a folder written to the disk, and all of its folders but itself."""
    for parent, folders, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        for name in folders:
            sync_folder(Path(parent, name))


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, ValueError):
        return {}
