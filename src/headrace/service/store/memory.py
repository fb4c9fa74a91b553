"""The file beside a store: the number that identifies the store, and the userids that it has assigned.

A userid stays in the jobs of its user. So it must not be assigned to another user, even if the store was lost or the
user was removed. A store with another number did not assign the userids that the jobs have.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from headrace.service.store import StoreUnusable


class Memory(NamedTuple):
    """The content of the file. `number` identifies the store.

    `given` are the assigned userids as ranges of first and last userid, in order.
    """

    number: int
    given: tuple[tuple[int, int], ...] = ()

    def __contains__(self, userid: object) -> bool:
        return isinstance(userid, int) and any(first <= userid <= last for first, last in self.given)

    def last_of(self, low: int, high: int) -> int:
        """The largest assigned userid from `low` to `high`; `low` - 1 if there is none."""
        return max((min(last, high) for first, last in self.given if first <= high and last >= low), default=low - 1)

    def with_userids(self, userids: Iterable[int]) -> Memory:
        runs: list[tuple[int, int]] = []
        for first, last in sorted((*self.given, *((userid, userid) for userid in userids))):
            if runs and first <= runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
            else:
                runs.append((first, last))
        return self._replace(given=tuple(runs))


def path_of(database: str) -> str:
    """The file beside a database."""
    return f"{os.path.splitext(database)[0]}-userids.json"


def read(database: str) -> Memory | None:
    """Read the file beside a database; None if it does not exist. Raises StoreUnusable."""
    path = path_of(database)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return Memory(int(found["store"]), tuple((int(first), int(last)) for first, last in found["given"]))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreUnusable(f"{path}: {exc.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise StoreUnusable(f"{path} is damaged: bring it back from a copy") from None


def write(database: str, known: Memory) -> None:
    """Write the file beside a database, and return once it is on disk. Raises StoreUnusable."""
    path = path_of(database)
    text = json.dumps({"store": known.number, "given": known.given}) + "\n"
    part = f"{path}.part"
    try:
        # Only one process writes at a time, because it holds the lock of the database.
        with open(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise StoreUnusable(f"{path}: {exc.strerror}") from None
