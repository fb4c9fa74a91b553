"""The private folders of jobs (FLUX_JOB_TMPDIR). Empty folders are renamed and reused by later jobs.

Creating and removing a folder costs two to five times as much as renaming it twice. On ext4 with `discard`, it also
delays each write of the journal: jobs of one broker ran at 0.65 of the speed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import archive
from headrace.formats.spec.os_error import reason

from .host import JobFolders, StartError

if TYPE_CHECKING:
    from headrace.engine.process.operations import Start

_SPARE = 64
# Nanoseconds after which a change of a folder certainly gets a different timestamp: several ticks of the kernel.
_TICKS = 100_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The number of passes over a folder to empty it.
_PASSES = 3


class Folders:
    """The folders of one agent, all below its broker's run directory."""

    def __init__(self) -> None:
        # Spare empty folders, each with the time of its last change (ns).
        self._spare: list[tuple[str, int]] = []
        # For folders in use: the time of the last change when the folder was empty. If it is still the same later, the
        # folder is still empty.
        self._untouched: dict[str, int] = {}

    def take(self, path: str) -> None:
        """Create `path` as an empty folder with mode 0700. Raises OSError."""
        try:
            self._make(path)
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # The folder was left by a killed agent, and its job was requeued.
            remove(path)
            self._make(path)

    def _make(self, path: str) -> None:
        if not self._spare or os.path.dirname(self._spare[-1][0]) != os.path.dirname(path):
            os.mkdir(path, 0o700)
            return
        spare, changed = self._spare[-1]
        os.rename(spare, path)
        self._spare.pop()
        if time.time_ns() - changed > _TICKS:
            self._untouched[path] = changed

    def give_back(self, path: str) -> None:
        """Remove the folder of an ended job with all its files, or keep it for the next job if it is empty."""
        changed = self._emptied(path)
        if changed is None or len(self._spare) >= _SPARE:
            with contextlib.suppress(OSError):
                remove(path)
        else:
            self._keep(path, changed)

    def remove_all(self) -> None:
        """Remove the spare folders."""
        for path, _changed in self._spare:
            shutil.rmtree(path, ignore_errors=True)
        self._spare.clear()

    def _emptied(self, path: str) -> int | None:
        """The time of the last change (ns) of the folder at `path` if it can be reused; else None.

        A folder can be reused if it is empty and has its original mode.
        """
        before = self._untouched.pop(path, None)
        try:
            now = os.stat(path)
            if now.st_mode & 0o7777 != 0o700 or (now.st_mtime_ns != before and os.listdir(path)):
                return None
        except OSError:
            return None
        return now.st_mtime_ns

    def _keep(self, path: str, changed: int) -> None:
        # The name contains the old name, because brokers of one machine may share the run directory.
        spare = "{}/spare-{}".format(*os.path.split(path))
        with contextlib.suppress(OSError):
            os.rename(path, spare)
            self._spare.append((spare, changed))


_removals: list[Thread] = []


def remove(path: str) -> None:
    """Remove a folder. Raises OSError.

    Removing a job's files may take minutes, so the folder is renamed at once and removed in another thread.
    """
    try:
        os.rmdir(path)
        return
    except OSError as exc:
        if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    renamed = f"{os.path.dirname(path)}/gone-{time.monotonic_ns():x}-{os.path.basename(path)}"
    os.rename(path, renamed)
    _removals[:] = [thread for thread in _removals if thread.is_alive()]
    _removals.append(Thread(target=_remove_tree, args=(renamed,)))
    _removals[-1].start()


def _remove_tree(path: str) -> None:
    """Remove a folder with everything below it, of any depth, while its user may still change it.

    Files that cannot be removed are left. A subfolder is moved to the top before it is emptied, which avoids recursion
    and long paths. All names are looked up in open folders that are not symbolic links. Otherwise, if root removes a
    user's folder, the user could redirect the removal to another place.
    """
    with contextlib.suppress(OSError):
        top = os.open(path, _FOLDER)
        try:
            # A pass may miss names because others are removed at the same time (readdir(3)).
            for _ in range(_PASSES):
                _empty(top)
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                    break
        finally:
            os.close(top)


def _empty(top: int) -> None:
    names = (f"{os.urandom(8).hex()}-{number}" for number in count())
    remaining = _clear(top, top, names)
    while remaining:
        name = remaining.pop()
        with contextlib.suppress(OSError):
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for _ in range(_PASSES):
                    remaining += _clear(folder, top, names)
                    with contextlib.suppress(OSError):
                        os.rmdir(name, dir_fd=top)
                        break
            finally:
                os.close(folder)


def _clear(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Remove files and empty folders from `folder`, and move other folders to the top.

    Returns the names of the moved folders.
    """
    remaining = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                    continue
                with contextlib.suppress(OSError):
                    os.rmdir(entry.name, dir_fd=folder)
                    continue
                name = entry.name if folder == top else next(names)
                if folder != top:
                    os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
                remaining.append(name)
    return remaining


def wait_for_removals() -> None:
    """Wait until all removals have finished."""
    for thread in _removals:
        thread.join()


class Given:
    """The folder of a guest's job, which root's agent creates and removes: root owns the run directory."""

    def take(self, path: str) -> None:
        pass

    def give_back(self, path: str) -> None:
        pass

    def remove_all(self) -> None:
        pass


def folder_of(op: Start, id: str) -> str:
    """The path of a job's folder on this node. `id` is the job's id as shown to users."""
    return f"{op['rundir']}/jobtmp-{op['nodeid']}-{id}"


def prepare(folders: JobFolders, path: str, files: Any) -> None:
    """Create the folder of a job, with the `files` of its jobspec. Raises StartError."""
    try:
        folders.take(path)
        unpack(files, path)
    except (OSError, archive.ArchiveError) as exc:
        raise StartError(f"cannot prepare {path}: {reason(exc)}") from None


def temporary(env: dict[str, str]) -> None:
    """Create the directory TMPDIR if it is missing. If that fails, set TMPDIR to /tmp."""
    path = env.get("TMPDIR")
    if path is None or os.path.isdir(path):
        return
    try:
        os.mkdir(path, 0o700)
    except OSError:
        env["TMPDIR"] = "/tmp"


def unpack(files: Any, folder: str) -> None:
    """Write the jobspec's `files` (RFC 37), if any, into `folder`. Raises OSError, ArchiveError."""
    if not files:
        return
    for file in archive.read(files):
        path = os.path.join(folder, file.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if file.kind == "directory":
            os.makedirs(path, mode=file.perms, exist_ok=True)
        elif file.kind == "symlink":
            os.symlink(file.target, path)
        else:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file.perms)
            with open(fd, "wb") as out:
                out.write(file.data)
            os.chmod(path, file.perms)
