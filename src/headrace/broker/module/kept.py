"""Data that a module hands over to its next load (`ModuleContext.kept`), or keeps in a statedir.

Data stays in the broker's memory, or in a file of the run directory for a module with a process of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.broker.attrs import AttrTable


class Kept(Protocol):
    """What a module hands over. `save` writes it to the file that the module reads in a process of its own."""

    def save(self, path: str) -> None: ...


def data_path(attrs: AttrTable, name: str, apart: bool) -> str:
    """The path of a module's database; "" for none, if the module can leave its data in memory (not `apart`)."""
    statedir = attrs.get("statedir", "")
    if statedir:
        return os.path.join(statedir, f"{name}.sqlite")
    # A run directory that the user made may have files of another broker: the pid tells them apart.
    path = os.path.join(attrs.get("rundir", ""), f"{name}-{attrs.get('broker.pid', '')}.sqlite")
    return path if apart or os.path.exists(path) else ""


def forget_data(attrs: AttrTable) -> None:
    """Remove the databases that `data_path` has put into the run directory, which may outlive the broker."""
    ending = f"-{attrs.get('broker.pid', '')}.sqlite"
    folder = attrs.get("rundir", "")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(ending):
            os.unlink(os.path.join(folder, name))
