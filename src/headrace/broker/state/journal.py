"""The journal and its checkpoints: the one durability mechanism of an instance with a `statedir`.

A journal file is a sequence of frames (little-endian u32 length, u32 CRC-32, payload), each a batch of records that
became durable together. The file is preallocated: it ends in zeros, and on a full disk that space is reserved for jobs
that are active then, so that their ends are recorded. Data after the last whole frame are a torn write and are cut off.
Whole frames behind a broken one mean that the file was damaged later: the state is that before the damage, and the rest
is moved aside for a recovery by hand. A checkpoint writes the state to SQLite and starts a new file; files with a lower
number than the one in the database are removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.broker.state.disk import NO_ROOM, reserve, room_in, unusable

_FRAME = struct.Struct("<II")
_AHEAD = 4 << 20
# Seconds before a full disk is tried again.
_ASK_AGAIN = 0.25
_LOST = "Jobs as of the last checkpoint are lost then; those that only the journal beside it knows are not."
_PREFIX = "journal."
_ASIDE = "damaged."
# The range (bytes) in which whole frames are searched after a broken one, which also limits their length.
_SEARCH = 1 << 20


class JournalError(OSError):
    """The folder cannot be used for a journal; the text has the reason."""

    def __str__(self) -> str:
        return str(self.strerror)


class Saved(NamedTuple):
    """The contents of a database: jobs by id, reference texts by number, settings by key."""

    jobs: Iterator[tuple[int, str, bytes]]
    texts: list[tuple[int, bytes]]
    meta: dict[str, bytes]


class Journal:
    """The journal in `folder`, which is locked for as long as it is open.

    `append` belongs to the thread of the loop; `sync` and `rotate` may be called from one other thread, and nothing may
    be appended during `rotate`. Raises JournalError, and OSError as the file system does.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.folder = folder
        self._lock = _lock(os.path.join(folder, "journal.lock"))
        self.db_path = os.path.join(folder, "jobs.sqlite")
        try:
            self._create()
            self.number = self._first()
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
        self.torn = 0
        self.damage = ""

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"{_PREFIX}{number:08d}")

    def _numbers(self) -> list[int]:
        names = [name[len(_PREFIX) :] for name in os.listdir(self.folder) if name.startswith(_PREFIX)]
        return sorted(int(name) for name in names if name.isdigit())

    # -- reading back

    def replay(self) -> Iterator[bytes]:
        """Every batch since the checkpoint, then the journal is open for writing. `torn` counts the bytes cut off, and
        `damage` says what was kept aside.
        """
        numbers = self._numbers() or [self.number]
        for index, number in enumerate(numbers):
            end = 0
            data = self._read(number)
            for place, payload in frames(data):
                end = place
                yield payload
            self._end = end
            self.number = number
            rest = data[end:].rstrip(b"\0")
            later = numbers[index + 1 :]
            # A new file is written only after the previous one was synced, so data behind a broken frame means damage.
            if rest and (_frames_behind(rest) or any(next(frames(self._read(other)), None) for other in later)):
                self._set_aside(number, end, data[end:], later)
                break
            if rest:
                # The torn write is cut off below, before the empty files after it are written.
                self.torn += len(rest)
                break
        self._fd = self._open(self._path(self.number), self._end)
        self._allocated = self._end
        self.room()

    def _read(self, number: int) -> bytes:
        try:
            with open(self._path(number), "rb") as handle:
                return handle.read()
        except FileNotFoundError:
            return b""

    def _set_aside(self, number: int, end: int, rest: bytes, later: list[int]) -> None:
        """Move the data after the damage at byte `end` of a file, and the files after it, to other names."""
        path = self._path(number)
        aside = os.path.join(self.folder, f"{_ASIDE}{number:08d}.{end}")
        with open(aside, "wb") as handle:
            handle.write(rest)
            os.fsync(handle.fileno())
        names = [aside]
        for other in later:
            names.append(os.path.join(self.folder, f"{_ASIDE}{other:08d}"))
            os.rename(self._path(other), names[-1])
        self.damage = (
            f"{path} is damaged at byte {end}: the state is as it was before, what was written after is kept in "
            + ", ".join(names)
        )

    def _open(self, path: str, end: int) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, end)
            _sync_folder(self.folder)
        except OSError:
            os.close(fd)
            raise
        return fd

    # -- writing

    def room(self, jobs: int = 0, size: int = 0) -> bool:
        """Whether `size` more bytes can be written, with the reserve for `jobs` active jobs left."""
        needed = reserve(jobs)
        left = self._allocated - self._end - size
        if left >= needed + _AHEAD // 2:
            return True
        now = time.monotonic()
        if now < self._full_since + _ASK_AGAIN and (left >= needed or self._full):
            return left >= needed
        allocated = _preallocate(self._fd, self._end, size + needed)
        if allocated is None:
            # The file system cannot preallocate, so only a write shows whether there is room.
            return True
        self._allocated = max(self._allocated, allocated)
        left = self._allocated - self._end - size
        if left < needed + _AHEAD // 2:
            self._full_since, self._full = now, left < needed
        return left >= needed

    def append(self, batch: bytes) -> None:
        """Write one batch: it survives the end of this process, and after `sync` that of the machine.

        Raises OSError, and then leaves the file as it was.
        """
        frame = _FRAME.pack(len(batch), zlib.crc32(batch)) + batch
        self._put(frame, self._end)
        self._unsafe.append((self._end, frame))
        self._end += len(frame)

    def _put(self, frame: bytes, place: int) -> None:
        data = memoryview(frame)
        while data:
            written = os.pwrite(self._fd, data, place)
            place += written
            data = data[written:]

    def sync(self) -> None:
        """Wait until all data appended before this call are on the disk. Raises OSError."""
        frames = list(self._unsafe)
        if self._doubtful:
            # After a failed sync, the kernel drops the data and reports success for the next sync, so they are written
            # again.
            for place, frame in frames:
                self._put(frame, place)
        try:
            os.fdatasync(self._fd)
        except OSError:
            self._doubtful = True
            raise
        self._doubtful = False
        del self._unsafe[: len(frames)]

    @property
    def size(self) -> int:
        """Bytes in the current file."""
        return self._end

    def rotate(self, jobs: int = 0) -> int:
        """Go on in a new file; returns its number, which the checkpoint that follows takes.

        Raises OSError, and goes on in the old file, also when the new one has no room for `jobs` active jobs.
        """
        path = self._path(self.number + 1)
        fd = self._open(path, 0)
        needed = reserve(jobs)
        try:
            allocated = _preallocate(fd, 0, needed)
            if allocated is not None and allocated < needed:
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for another file of {needed >> 10} KiB")
            # The new file has the reserve now; the rest of a failed write is removed, as it would look like damage.
            os.ftruncate(self._fd, self._end)
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

    def _create(self) -> None:
        with contextlib.closing(self._connect()) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, known TEXT, record BLOB)")
            db.execute("CREATE TABLE IF NOT EXISTS text (number INTEGER PRIMARY KEY, value BLOB)")
            db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB)")

    def _first(self) -> int:
        with contextlib.closing(self._connect()) as db:
            row = db.execute("SELECT value FROM meta WHERE key='journal'").fetchone()
        return int(row[0]) if row else 0

    def load(self) -> Saved:
        """What the last checkpoint saved; jobs are (id, summary or "" if active, record), in order of id.

        Raises JournalError, also while the jobs are read.
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
        """The error for data that were read back and are not what was saved."""
        return self._unusable(ValueError(what))

    def _unusable(self, exc: Exception) -> JournalError:
        return JournalError(errno.EIO, unusable(self.db_path, exc, _LOST))

    def checkpoint(
        self,
        number: int,
        jobs: Iterable[tuple[int, str, bytes]],
        gone: Iterable[int],
        texts: Iterable[tuple[int, bytes]],
        meta: dict[str, bytes],
    ) -> None:
        """Save the state, which must include everything before file `number`, and remove the earlier files.

        For another thread. Raises OSError.
        """
        try:
            self._save(number, jobs, gone, texts, meta)
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
        gone: Iterable[int],
        texts: Iterable[tuple[int, bytes]],
        meta: dict[str, bytes],
    ) -> None:
        with contextlib.closing(self._connect()) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", jobs)
            db.executemany("DELETE FROM job WHERE id=?", ((id,) for id in gone))
            db.executemany("INSERT OR REPLACE INTO text VALUES (?, ?)", texts)
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
            db.execute("INSERT OR REPLACE INTO meta VALUES ('journal', ?)", (number,))
            db.execute("COMMIT")

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            os.close(self._fd)
            self._fd = -1
        os.close(self._lock)


def _preallocate(fd: int, end: int, needed: int) -> int | None:
    """Allocate `needed` bytes after `end`, preferably more; returns the end of the allocated space.

    Returns `end` if the disk is full, None if the file system cannot preallocate.
    """
    room = room_in(fd)
    for more in (_AHEAD, _AHEAD // 8, 0):
        if more and needed + more > room // 2:
            # On a small disk, room is left for other data.
            continue
        try:
            os.posix_fallocate(fd, end, needed + more)
        except OSError as exc:
            if exc.errno not in NO_ROOM:
                return None
        else:
            return end + needed + more
    return end


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset of the end, payload) for each whole frame at the start of `data`."""
    place = 0
    while place + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, place)
        start = place + _FRAME.size
        payload = data[start : start + length]
        if not length or len(payload) != length or zlib.crc32(payload) != crc:
            return
        place = start + length
        yield place, payload


def _frames_behind(data: bytes) -> bool:
    """Whether a whole frame follows the broken frame at the start of `data`."""
    for place in range(1, min(len(data) - _FRAME.size, _SEARCH)):
        length, crc = _FRAME.unpack_from(data, place)
        start = place + _FRAME.size
        if 0 < length <= min(_SEARCH, len(data) - start) and zlib.crc32(data[start : start + length]) == crc:
            return True
    return False


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
