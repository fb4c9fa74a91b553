"""The journal and its checkpoints: the one durability mechanism of an instance with a `statedir`.

A journal file is a sequence of frames (`frames.py`), each a batch of records that became durable together. The file is
preallocated with zeros: on a full disk, that space is reserved for the jobs that are active, so that their ends can be
recorded. An incomplete frame after the last complete one is an unfinished write, which was never acknowledged, and is
cut off. Any other data there mean that the file was damaged later. A damaged frame of known length is saved to another
file, and the frames after it are read. If the length is unknown, the rest of the file is moved aside for a recovery by
hand. A checkpoint writes the state to SQLite and starts a new file. Files with a lower number than the one in the
database are removed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from headrace.engine.broker.state.disk import NO_ROOM, is_emptied, reserve, room_in, unusable
from headrace.engine.broker.state.frames import Frame, copy_part, end_of_data, frame, frames, is_unfinished, void_head

_AHEAD = 4 << 20
# The least size in bytes of any file, all zeros if nothing was written: a file of 0 bytes was emptied later.
_LEAST = 1
# Seconds before a full disk is tried again.
_ASK_AGAIN = 0.25
_LOST = "Jobs as of the last checkpoint are lost then; those that only the journal beside it knows are not."
_PREFIX = "journal."
_ASIDE = "damaged."


class JournalError(OSError):
    """The folder cannot be used for a journal. The text has the reason."""

    def __str__(self) -> str:
        return str(self.strerror)


class Saved(NamedTuple):
    """The contents of a database: jobs by id, reference texts by number, settings by key."""

    jobs: Iterator[tuple[int, str, bytes]]
    texts: list[tuple[int, bytes]]
    meta: dict[str, bytes]


class Journal:
    """The journal in `folder`, which is locked while it is open.

    `append` may only be called by the thread of the loop. `sync` and `rotate` may be called from one other thread, and
    `append` must not be called during `rotate`. Raises JournalError, and the OSErrors of the file system.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.folder = folder
        self._lock = _lock(os.path.join(folder, "journal.lock"))
        self.db_path = os.path.join(folder, "jobs.sqlite")
        # True if no instance has used this folder before.
        self.is_new = not (self._numbers() or os.path.exists(self.db_path))
        # The path of a file in the statedir that was emptied or removed, and the data lost with it; "" for none.
        self.missing = ""
        try:
            self.number = self._first_number()
        except (sqlite3.Error, ValueError) as exc:
            os.close(self._lock)
            raise self._unusable(exc) from None
        for number in self._numbers():
            if number < self.number:
                os.unlink(self._path(number))
        self._fd = -1
        self._end = 0
        self._allocated = 0
        # Frames by offset that may not be on the disk yet, and whether syncing them has failed.
        self._unsafe: list[tuple[int, bytes]] = []
        self._doubtful = False
        self._full_since, self._full = -1.0, False
        path = self._path(self.number)
        # The first file is created after the database, any other file before the checkpoint that names it.
        if not self.missing and is_emptied(path) and (self.number or os.path.exists(path)):
            self.missing = f"{path} is empty or missing: the job data in it is lost"
        self.torn = 0
        self.damage = ""

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"{_PREFIX}{number:08d}")

    def _numbers(self) -> list[int]:
        names = [name[len(_PREFIX) :] for name in os.listdir(self.folder) if name.startswith(_PREFIX)]
        return sorted(int(name) for name in names if name.isdigit())

    # -- reading back

    def replay(self) -> Iterator[bytes]:
        """Yield every batch since the checkpoint, then open the journal for writing.

        `torn` counts the bytes cut off, and `damage` describes the data that were moved aside.
        """
        numbers = self._numbers()
        while True:
            self._end = 0
            later = [number for number in numbers if number > self.number]
            with self._read(self.number) as file:
                is_marked = False
                for found in frames(file):
                    if found.is_damaged and end_of_data(file, found.begin) < found.end:
                        # An unfinished write.
                        break
                    if found.is_damaged:
                        self._make_void(file, found)
                    is_marked = found.payload == b""
                    if not is_marked:
                        self._end = found.end
                    if found.payload:
                        yield found.payload
                if not is_marked:
                    self._handle_rest(file, later)
            if not (is_marked and later):
                break
            self.number += 1
        self._fd = self._open(self._path(self.number), self._end)
        self._allocated = self._end
        self.room()

    def _read(self, number: int) -> BinaryIO:
        try:
            return open(self._path(number), "rb")
        except FileNotFoundError:
            return io.BytesIO()

    def _handle_rest(self, file: BinaryIO, later: list[int]) -> None:
        """Handle the data after the last complete frame of a file without an end mark.

        An unfinished write is cut off; any other data are moved aside. A later file is written only once the previous
        one has its end mark.
        """
        end = end_of_data(file, self._end)
        if is_unfinished(file, self._end, end) and not any(self._has_data(number) for number in later):
            # `_open` cuts it off before the empty files after this one are written.
            self.torn = end - self._end
        else:
            self._set_aside(file, later)

    def _has_data(self, number: int) -> bool:
        with self._read(number) as file:
            return end_of_data(file, 0) > 0

    def _make_void(self, file: BinaryIO, damaged: Frame) -> None:
        """Save a damaged frame to another file, and mark it void, so that later starts skip it."""
        name = self._save_part(file, damaged.begin, damaged.end)
        with open(os.open(self._path(self.number), os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=0) as handle:
            os.pwrite(handle.fileno(), void_head(file, damaged.begin), damaged.begin)
            os.fsync(handle.fileno())
        self._log_damage(damaged.begin, f"{damaged.end - damaged.begin} bytes are skipped and saved in {name}")

    def _save_part(self, file: BinaryIO, place: int, end: int | None) -> str:
        """Copy a part of the current file to a new file; returns its path."""
        name = self._unused_path(f"{self.number:08d}.{place}")
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as handle:
            copy_part(file, place, end, handle)
            os.fsync(handle.fileno())
        return name

    def _log_damage(self, place: int, what: str) -> None:
        text = f"{self._path(self.number)} is damaged at byte {place}: {what}"
        self.damage = f"{self.damage}; {text}" if self.damage else text

    def _set_aside(self, file: BinaryIO, later: Iterable[int]) -> None:
        """Move the data after the last complete frame of a damaged file, and all later files, to other names."""
        names = []
        if end_of_data(file, self._end) > self._end:
            names.append(self._save_part(file, self._end, None))
        for number in later:
            names.append(self._unused_path(f"{number:08d}"))
            os.rename(self._path(number), names[-1])
        kept = ", ".join(names)
        self._log_damage(self._end, f"the data before it are used, and the data after it are saved in {kept}")

    def _unused_path(self, name: str) -> str:
        """An unused path for data that are moved aside: files of earlier damage are kept."""
        path = os.path.join(self.folder, _ASIDE + name)
        count = 0
        while os.path.lexists(path if not count else f"{path}.{count}"):
            count += 1
        return f"{path}.{count}" if count else path

    def _open(self, path: str, end: int) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, max(end, _LEAST))
            _sync_folder(self.folder)
        except OSError:
            os.close(fd)
            raise
        return fd

    # -- writing

    def room(self, jobs: int = 0, size: int = 0) -> bool:
        """True if `size` more bytes can be written without using the reserve for `jobs` active jobs."""
        needed = reserve(jobs)
        room = self._allocated - self._end - size
        if room >= needed + _AHEAD // 2:
            return True
        now = time.monotonic()
        if now < self._full_since + _ASK_AGAIN and (room >= needed or self._full):
            return room >= needed
        allocated = _preallocate(self._fd, self._end, size + needed)
        if allocated is None:
            # The file system cannot preallocate, so only a write shows whether there is room.
            return True
        self._allocated = max(self._allocated, allocated)
        room = self._allocated - self._end - size
        if room < needed + _AHEAD // 2:
            self._full_since, self._full = now, room < needed
        return room >= needed

    def append(self, batch: bytes) -> None:
        """Write one batch. It survives the end of this process, and after `sync` a crash of the machine.

        If this raises OSError, the file is unchanged.
        """
        data = frame(batch, self._end)
        try:
            self._put(data, self._end)
        except OSError:
            # Overwrite the partial frame with zeros: behind a shorter frame at this offset, its rest would look like
            # damage.
            with contextlib.suppress(OSError):
                self._put(bytes(len(data)), self._end)
            raise
        self._unsafe.append((self._end, data))
        self._end += len(data)

    def _put(self, data: bytes, place: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, place)
            place += written
            view = view[written:]

    def sync(self) -> None:
        """Wait until all data appended before this call are on the disk. Raises OSError."""
        unsafe = list(self._unsafe)
        if self._doubtful:
            # After a failed sync, the kernel drops the data and reports success for the next sync, so write them again.
            for place, data in unsafe:
                self._put(data, place)
        try:
            os.fdatasync(self._fd)
        except OSError:
            self._doubtful = True
            raise
        self._doubtful = False
        del self._unsafe[: len(unsafe)]

    @property
    def size(self) -> int:
        """Bytes in the current file."""
        return self._end

    def rotate(self, jobs: int = 0) -> int:
        """Continue in a new file. Returns its number, for the next checkpoint.

        Raises OSError and continues in the old file on failure, also if there is no room for `jobs` active jobs.
        """
        path = self._path(self.number + 1)
        fd = self._open(path, 0)
        needed = reserve(jobs)
        try:
            allocated = _preallocate(fd, 0, needed)
            if allocated is not None and allocated < needed:
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for another file of {needed >> 10} KiB")
            # The new file has the reserve now. The end mark has no effect until data are appended to the new file.
            mark = frame(b"", self._end)
            self._put(mark, self._end)
            os.ftruncate(self._fd, self._end + len(mark))
            self._allocated = self._end
            self.sync()
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        os.close(self._fd)
        self._fd, self._end, self._allocated = fd, 0, allocated or 0
        self.number += 1
        return self.number

    # -- checkpoints

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.db_path, isolation_level=None)

    def _first_number(self) -> int:
        """The number of the first file after the last checkpoint, or the lowest one. Creates the database.

        The first checkpoint removes file 0. So if the lowest number is above 0, an existing database without a
        checkpoint was emptied: raises ValueError. A missing database may have been moved away on purpose.
        """
        lowest = min(self._numbers(), default=0)
        if not (os.path.exists(self.db_path) or os.path.exists(self.db_path + "-wal")):
            self._create(lowest)
            if lowest:
                self.missing = (
                    f"{self.db_path} is missing, and the jobs in it are lost: only the jobs in the journal are restored"
                )
            return lowest
        saved = None if is_emptied(self.db_path) else self._saved_number()
        if saved is None and lowest:
            raise ValueError(f"it has nothing, but {self._path(lowest)} follows a checkpoint in it")
        self._create(0)
        return lowest if saved is None else saved

    def _saved_number(self) -> int | None:
        with contextlib.closing(self._connect()) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
                return None
            row = db.execute("SELECT value FROM meta WHERE key='journal'").fetchone()
        return int(row[0]) if row else None

    def _create(self, lowest: int) -> None:
        """Create the tables, and for a `lowest` number above 0 a checkpoint that precedes file `lowest`."""
        with contextlib.closing(self._connect()) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, known TEXT, record BLOB)")
            db.execute("CREATE TABLE IF NOT EXISTS text (number INTEGER PRIMARY KEY, value BLOB)")
            db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB)")
            if lowest:
                db.execute("INSERT INTO meta VALUES ('journal', ?)", (lowest,))
            db.execute("COMMIT")

    def load(self) -> Saved:
        """The state saved by the last checkpoint.

        Jobs are (id, summary or "" if active, record), in order of id. Raises JournalError, also while the jobs are
        read.
        """
        try:
            with contextlib.closing(self._connect()) as db:
                texts = db.execute("SELECT number, value FROM text ORDER BY number").fetchall()
                meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
        except sqlite3.Error as exc:
            raise self._unusable(exc) from None
        return Saved(self._jobs(), texts, meta)

    def _jobs(self) -> Iterator[tuple[int, str, bytes]]:
        try:
            with contextlib.closing(self._connect()) as db:
                yield from db.execute("SELECT id, known, record FROM job ORDER BY id")
        except sqlite3.Error as exc:
            raise self._unusable(exc) from None

    def damaged(self, what: str) -> JournalError:
        """The error for data that were read back but differ from the saved data."""
        return self._unusable(ValueError(what))

    def _unusable(self, exc: Exception) -> JournalError:
        return JournalError(errno.EIO, unusable(self.db_path, exc, _LOST))

    def checkpoint(
        self,
        number: int,
        jobs: Iterable[tuple[int, str, bytes]],
        removed: Iterable[int],
        texts: Iterable[tuple[int, bytes]],
        meta: dict[str, bytes],
    ) -> None:
        """Save the state, which must include everything before file `number`, and remove the earlier files.

        May run in another thread. Raises OSError.
        """
        try:
            self._save(number, jobs, removed, texts, meta)
        except sqlite3.Error as exc:
            raise OSError(errno.ENOSPC if "full" in str(exc) else errno.EIO, f"{self.db_path}: {exc}") from None
        for old in self._numbers():
            if old < number:
                with contextlib.suppress(OSError):
                    os.unlink(self._path(old))

    def _save(
        self,
        number: int,
        jobs: Iterable[tuple[int, str, bytes]],
        removed: Iterable[int],
        texts: Iterable[tuple[int, bytes]],
        meta: dict[str, bytes],
    ) -> None:
        with contextlib.closing(self._connect()) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", jobs)
            db.executemany("DELETE FROM job WHERE id=?", ((id,) for id in removed))
            db.executemany("INSERT OR REPLACE INTO text VALUES (?, ?)", texts)
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
            db.execute("INSERT OR REPLACE INTO meta VALUES ('journal', ?)", (number,))
            db.execute("COMMIT")

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, max(self._end, _LEAST))
            os.close(self._fd)
            self._fd = -1
        os.close(self._lock)


def _preallocate(fd: int, end: int, needed: int) -> int | None:
    """Allocate `needed` bytes after `end`, preferably more. Returns the end of the allocated space.

    Returns `end` if the disk is full, and None if the file system cannot preallocate.
    """
    room = room_in(fd)
    for more in (_AHEAD, _AHEAD // 8, 0):
        if more and needed + more > room // 2:
            # On a small disk, leave room for other data.
            continue
        try:
            os.posix_fallocate(fd, end, needed + more)
        except OSError as exc:
            if exc.errno not in NO_ROOM:
                return None
        else:
            return end + needed + more
    return end


def _lock(path: str) -> int:
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise JournalError(errno.EBUSY, f"{os.path.dirname(path)} is in use by another instance") from None
    return fd


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
