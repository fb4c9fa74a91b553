"""Experiments below a folder of the service's machine, for `/v2` and the pages.

The owner and administrators see them. Files are read in a thread. A request names an experiment by its folder, which is
looked up among those that were found, and never used as a path.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from headrace.experiments.store.folder import REPORT, Folder, FolderError, Known
from headrace.experiments.store.output import last_lines, open_regular
from headrace.experiments.store.search import folders
from headrace.experiments.store.status import Status, read
from headrace.experiments.values import Result
from headrace.service.people import AdminsOnly
from headrace.service.users.credential import Identity

# The largest report that is sent, in bytes.
_LARGEST_REPORT = 64 << 20
# Experiments whose results are kept in memory, so that only new ones are read when a page reloads.
_REMEMBERED = 4
# The modification times of `plan.json` and of the folders of cells. Each run that begins or ends changes one of them.
_Times = tuple[int, ...]


class NoExperiments(LookupError):
    """The service has no folder of experiments. The text is for users."""


class NoSuchExperiment(LookupError):
    """The folder of an experiment, or its report, does not exist. The text is for users."""


class Listed(NamedTuple):
    """An experiment by its folder, relative to that of the service."""

    folder: str
    status: Status


class Listing(NamedTuple):
    """`problems` has a sentence for each experiment that cannot be read."""

    experiments: list[Listed]
    problems: list[str]


class Shown(NamedTuple):
    """An experiment with its runs in the order in which they began.

    `last_lines` has those of the runs in `status.failures`.
    """

    folder: str
    status: Status
    runs: list[Result]
    last_lines: list[list[str]]
    has_report: bool


class Experiments:
    """The experiments below the folder `top` ("": none). Methods raise NoExperiments, AdminsOnly, FolderError."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._statuses: dict[str, tuple[_Times, Status]] = {}
        self._results: OrderedDict[str, Known] = OrderedDict()
        self._lock = threading.Lock()

    def are_for(self, identity: Identity) -> bool:
        """True if there is a folder of experiments, and this user may see it."""
        return bool(self._top) and identity.sees_all

    async def listing(self, identity: Identity) -> Listing:
        """All experiments, by folder."""
        self._check(identity)
        return await asyncio.to_thread(self._listing)

    async def one(self, identity: Identity, folder: str) -> Shown:
        """Raises NoSuchExperiment."""
        self._check(identity)
        return await asyncio.to_thread(self._one, folder)

    async def report(self, identity: Identity, folder: str) -> bytes:
        """The page that was written when the experiment ended. Raises NoSuchExperiment."""
        self._check(identity)
        return await asyncio.to_thread(self._report, folder)

    def _check(self, identity: Identity) -> None:
        if not self._top:
            raise NoExperiments("this service shows no experiments: headrace api start --experiments DIR shows them")
        if not identity.sees_all:
            raise AdminsOnly("only administrators may see experiments")

    def _listing(self) -> Listing:
        found, problems = [], []
        statuses: dict[str, tuple[_Times, Status]] = {}
        for name, path in self._folders().items():
            try:
                statuses[path] = self._status(path)
            except FolderError as exc:
                problems.append(str(exc))
            else:
                found.append(Listed(name, statuses[path][1]))
        self._statuses = statuses
        return Listing(found, problems)

    def _status(self, path: str) -> tuple[_Times, Status]:
        """The status, from memory if no run has begun or ended since."""
        folder = Folder(path)
        times = _times(folder)
        before = self._statuses.get(path)
        is_running = folder.is_locked()
        if before and before[0] == times and is_running == (before[1].state == "running"):
            return before
        return times, read(folder, self._results_of(folder))[0]

    def _one(self, name: str) -> Shown:
        folder = self._folder(name)
        _times(folder)
        status, runs = read(folder, self._results_of(folder))
        lines = [last_lines(folder, result) for result in status.failures]
        return Shown(name, status, runs, lines, (folder.path / REPORT).is_file())

    def _results_of(self, folder: Folder) -> Known:
        """The results that were read before, of the experiments that were read last."""
        with self._lock:
            found = self._results.setdefault(str(folder.path), {})
            self._results.move_to_end(str(folder.path))
            if len(self._results) > _REMEMBERED:
                self._results.popitem(last=False)
        return found

    def _report(self, name: str) -> bytes:
        path = self._folder(name).path / REPORT
        try:
            with open_regular(path) as file:
                text = file.read(_LARGEST_REPORT + 1)
        except FileNotFoundError:
            raise NoSuchExperiment(f"'{name}' has no report yet: headrace experiment report makes one") from None
        except OSError as exc:
            raise FolderError(f"{path}: {exc.strerror}") from None
        if len(text) > _LARGEST_REPORT:
            raise FolderError(f"{path}: is larger than {_LARGEST_REPORT >> 20} MiB: open the file itself")
        return text

    def _folder(self, name: str) -> Folder:
        path = self._folders().get(name)
        if path is None:
            raise NoSuchExperiment(f"there is no experiment '{name}' in the folder of this service")
        return Folder(path)

    def _folders(self) -> dict[str, str]:
        """The paths of all experiments by their names, which are relative to the folder of the service."""
        try:
            paths = list(folders(self._top))
        except OSError as exc:
            raise FolderError(f"{self._top}: {exc.strerror}") from None
        return {_name(path, self._top): path for path in paths}


def _name(path: str, top: str) -> str:
    """A relative path in UTF-8; if the service's folder is itself an experiment, the folder's own name."""
    relative = os.path.relpath(path, top)
    found = os.path.basename(top) if relative == os.curdir else relative
    return os.fsencode(found).decode(errors="replace")


def _times(folder: Folder) -> _Times:
    """The times of an experiment's files. Raises FolderError, also if they are reached through symbolic links."""
    runs = folder.path / "runs"
    try:
        _check_own(folder.path / "plan.json", runs)
        with os.scandir(runs) as cells:
            paths = sorted((Path(cell.path) for cell in cells), key=str)
        _check_own(*paths)
        return tuple(path.lstat().st_mtime_ns for path in (folder.path / "plan.json", *paths))
    except OSError as exc:
        raise FolderError(f"{exc.filename}: {exc.strerror}") from None


def _check_own(*paths: Path) -> None:
    for path in paths:
        if path.is_symlink():
            raise FolderError(f"{path}: is a symbolic link, which this service does not follow")
