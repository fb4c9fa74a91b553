"""The store of users and tokens: a file of SQLite that only its owner can read.

A removed, emptied or replaced file is not a new store, because jobs have its userids (`memory.py`). So the store is
checked when a program opens it, and again at each use. Each use opens the file again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from headrace.service.store import StoreError, StoreUnusable, memory
from headrace.storage.database import Database, DatabaseError, migrate, migrations, require, sqlite

# The first bytes of a file of SQLite (its file format, section 1.3).
_MAGIC = b"SQLite format 3\0"
# Seconds that a command waits for the lock of another process.
_BUSY_TIMEOUT = 10.0
# The largest number that SQLite keeps for an application in a file (PRAGMA user_version).
_LARGEST_NUMBER = (1 << 31) - 1


class Store:
    """A store that `open_file` has checked. A use fails if another file has replaced it."""

    def __init__(self, path: str, on_error: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._on_error = on_error
        # The number that the file must have; 0 until `open_file` knows it.
        self.number = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[Database]:
        """The database, for queries. Raises StoreUnusable."""
        try:
            # With mode=rw a removed file is not created again.
            database = sqlite(f"file:{quote(self.path)}?mode=rw", _BUSY_TIMEOUT, uri=True)
            with contextlib.closing(database):
                if self.number and number_of(database) != self.number:
                    raise DatabaseError("another file has taken its place")
                yield database
        except DatabaseError as exc:
            if self._on_error is not None:
                self._on_error(str(exc))
            raise StoreUnusable(str(exc)) from None

    @contextlib.contextmanager
    def changing(self) -> Iterator[Database]:
        """The database in a transaction, during which no other process changes it. Raises StoreUnusable."""
        with self.reading() as database, database.transaction(locked=True):
            yield database


def open_file(path: str, on_error: Callable[[str], None] | None = None, reset: bool = False) -> Store:
    """Open the store at `path`, or create it, and bring it to this program's schema. Raises StoreError.

    `on_error` gets the text of each SQLite error. With `reset`, a file without users replaces the store that was here
    before.
    """
    known = memory.read(path)
    if known is not None and not reset and not os.path.exists(path):
        raise _other_store(path)
    _make_private(path)
    store = Store(path, on_error)
    try:
        with store.reading() as database:
            if known is not None and not reset and number_of(database) != known.number:
                raise _other_store(path)
            _migrate(database, path)
        store.number = _reset(store) if reset else _identify(store)
    except StoreUnusable as exc:
        raise StoreError(f"{path}: {exc}") from None
    return store


def number_of(database: Database) -> int:
    """The random number that identifies a store, 0 for a file without one."""
    return int(database.rows("PRAGMA user_version")[0][0])


def _migrate(database: Database, path: str) -> None:
    files = migrations(Path(__file__).with_name("schema"))
    # An unreadable database fails here, so that its error does not blame another version.
    number_of(database)
    try:
        require(database, at_most=files[-1].number)
    except DatabaseError as exc:
        raise StoreError(f"{path}: made by another version of Headrace: {exc}") from None
    migrate(database, files)


def _make_private(path: str) -> None:
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            mode = stat.S_IMODE(os.fstat(file).st_mode)
            begin = os.pread(file, len(_MAGIC), 0)
        finally:
            os.close(file)
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from None
    if begin not in (b"", _MAGIC):
        raise StoreError(f"{path}: the store of users cannot be used: file is not a database")
    if mode & 0o077:
        raise StoreError(f"{path}: others have rights to this file, which has passwords (mode {mode:o}): chmod 600")


def _other_store(path: str) -> StoreError:
    return StoreError(
        f"{path} is not the store of users that was here before: it was removed, emptied or replaced. Restore "
        "it from a copy. To begin without its users, move the present file away, then: headrace api users reset"
    )


def _identify(store: Store) -> int:
    """The number of the store; a new store gets one. Raises StoreError if another store was here before."""
    with store.changing() as database:
        if memory.read(store.path) is None and not number_of(database):
            _renumber(database)
    # The memory is written once the number is on disk. A service that is killed in between continues here next time.
    with store.changing() as database:
        number, known = number_of(database), memory.read(store.path)
        if known is None:
            memory.write(store.path, memory.Memory(number).with_userids(_userids(database)))
        elif known.number != number:
            raise _other_store(store.path)
    return number


def _reset(store: Store) -> int:
    with store.changing() as database:
        if _userids(database):
            raise StoreError(f"{store.path} has users: move it away first")
        known = memory.read(store.path)
        if not number_of(database):
            _renumber(database)
        number = number_of(database)
        # The file has no users, so nothing is lost if the two numbers differ.
        memory.write(store.path, memory.Memory(number) if known is None else known._replace(number=number))
    return number


def _renumber(database: Database) -> None:
    database.execute(f"PRAGMA user_version = {1 + secrets.randbelow(_LARGEST_NUMBER)}")


def _userids(database: Database) -> list[int]:
    return [userid for (userid,) in database.rows("SELECT userid FROM users")]
