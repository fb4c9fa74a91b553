"""Data that a module passes to its next load (`ModuleContext.kept`) or stores in a statedir.

Between loads the data is in the broker's memory, or for a module with its own process in a file in the run directory.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.engine.broker.attrs import AttrTable


class Kept(Protocol):
    """Data that a module passes to its next load.

    `save` writes the file that the module reads if it then runs in its own process.
    """

    def save(self, path: str) -> None: ...


def data_path(attrs: AttrTable, name: str, apart: bool) -> str:
    """The path of a module's database, or "" if the module can keep its data in memory (not `apart`)."""
    statedir = attrs.get("statedir", "")
    if statedir:
        return os.path.join(statedir, f"{name}.sqlite")
    # A user's run directory may contain files of another broker. The pid distinguishes them.
    path = os.path.join(attrs.get("rundir", ""), f"{name}-{attrs.get('broker.pid', '')}.sqlite")
    return path if apart or os.path.exists(path) else ""


def make_private(path: str | os.PathLike[str]) -> None:
    """Create the database at `path` if needed, readable only by its owner.

    Its folder may be open to guests. SQLite gives the files beside it the same mode, and reports errors about the path.
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
