"""Data that a module hands over to its next load (`ModuleContext.kept`), or keeps in a statedir.

Data stays in the broker's memory, or in a file of the run directory for a module with a process of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.engine.broker.attrs import AttrTable


class Kept(Protocol):
    """Data that a module passes to its next load. `save` writes it to the file that a process of its own reads."""

    def save(self, path: str) -> None: ...


def data_path(attrs: AttrTable, name: str, apart: bool) -> str:
    """The path of a module's database; "" for none, if the module can leave its data in memory (not `apart`)."""
    statedir = attrs.get("statedir", "")
    if statedir:
        return os.path.join(statedir, f"{name}.sqlite")
    # A user's run directory may have files of another broker; the pid distinguishes them.
    path = os.path.join(attrs.get("rundir", ""), f"{name}-{attrs.get('broker.pid', '')}.sqlite")
    return path if apart or os.path.exists(path) else ""


def make_private(path: str | os.PathLike[str]) -> None:
    """Have a database at `path`, made if it is not there, that nobody else can read: folders may be open to guests.

    SQLite gives the files beside it the same mode, and says what is wrong with a path.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def forget_data(attrs: AttrTable) -> None:
    """Remove the databases of `data_path` from the run directory, which may outlive the broker."""
    ending = f"-{attrs.get('broker.pid', '')}.sqlite"
    folder = attrs.get("rundir", "")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(ending):
            os.unlink(os.path.join(folder, name))
