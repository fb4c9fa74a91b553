"""The private folders of jobs (FLUX_JOB_TMPDIR). One that comes back empty becomes, under another name, the next job's.

Making and removing a folder costs two to five times what renaming it twice does. On ext4 with `discard` it also holds
up each write of the journal: jobs of one broker ran at .65 of the speed.
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
# Nanoseconds after which a change of a folder is sure to have another time stamp: several ticks of the kernel.
_TICKS = 100_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# How often a folder is looked through until it is empty.
_PASSES = 3


class Folders:
    """The folders of one agent, all below its broker's run directory."""

    def __init__(self) -> None:
        # Empty folders, each with the time when it was last changed (ns).
        self._spare: list[tuple[str, int]] = []
        # Of folders in use that were empty: the time of their last change, by which one sees whether they are still.
        self._untouched: dict[str, int] = {}

    def take(self, path: str) -> None:
        """Make `path` an empty folder that only its owner may enter. Raises OSError."""
        try:
            self._make(path)
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # An agent that was killed has left it, and its job was queued again.
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
        """The job is over: its folder goes, with whatever it left there."""
        changed = self._emptied(path)
        if changed is None or len(self._spare) >= _SPARE:
            with contextlib.suppress(OSError):
                remove(path)
        else:
            self._keep(path, changed)

    def remove_all(self) -> None:
        """Remove what is kept for the next job."""
        for path, _changed in self._spare:
            shutil.rmtree(path, ignore_errors=True)
        self._spare.clear()

    def _emptied(self, path: str) -> int | None:
        """When the folder at `path`, which is empty and as it was, was last changed (ns); None if it cannot be used."""
        before = self._untouched.pop(path, None)
        try:
            now = os.stat(path)
            if now.st_mode & 0o7777 != 0o700 or (now.st_mtime_ns != before and os.listdir(path)):
                return None
        except OSError:
            return None
        return now.st_mtime_ns

    def _keep(self, path: str, changed: int) -> None:
        # Its name stays part of it: brokers of one machine may share the run directory.
        spare = "{}/spare-{}".format(*os.path.split(path))
        with contextlib.suppress(OSError):
            os.rename(path, spare)
            self._spare.append((spare, changed))


_removals: list[Thread] = []


def remove(path: str) -> None:
    """Remove a folder. What a job has left in it may take minutes, so it goes under another name, in another thread.

    Raises OSError.
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
    """Remove a folder with all that is in it, however deep, while its user may still change it; what cannot be removed
    stays.

    A folder below is moved to the top before it is emptied, so there is no recursion and no long path. All names are
    looked up in open folders that are no symbolic links: where root removes a user's folder, the user could lead it
    elsewhere otherwise.
    """
    with contextlib.suppress(OSError):
        top = os.open(path, _FOLDER)
        try:
            # Names may be left out where others are removed meanwhile (readdir(3)).
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
    """Remove what is no folder, or an empty one; the other folders go to the top. Returns the names there."""
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
    """Wait until folders that were to be removed are gone."""
    for thread in _removals:
        thread.join()


class Given:
    """The folder of a guest's job: the agent of root makes and removes it, as the run directory is root's."""

    def take(self, path: str) -> None:
        pass

    def give_back(self, path: str) -> None:
        pass

    def remove_all(self) -> None:
        pass


def folder_of(op: Start, id: str) -> str:
    """The path of the folder of a job on this node; `id` is its id as users see it."""
    return f"{op['rundir']}/jobtmp-{op['nodeid']}-{id}"


def prepare(folders: JobFolders, path: str, files: Any) -> None:
    """Make the folder of a job, with the `files` of its jobspec. Raises StartError."""
    try:
        folders.take(path)
        unpack(files, path)
    except (OSError, archive.ArchiveError) as exc:
        raise StartError(f"cannot prepare {path}: {reason(exc)}") from None


def temporary(env: dict[str, str]) -> None:
    """Create the directory TMPDIR if it is missing; TMPDIR becomes /tmp where that fails."""
    path = env.get("TMPDIR")
    if path is None or os.path.isdir(path):
        return
    try:
        os.mkdir(path, 0o700)
    except OSError:
        env["TMPDIR"] = "/tmp"


def unpack(files: Any, folder: str) -> None:
    """Write the jobspec's `files` (RFC 37), if there are any, into `folder`. Raises OSError, ArchiveError."""
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
