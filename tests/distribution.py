"""How `pytest -n` shares the tests among its processes: file by file, and all of `tests/kube` in one process.

The tests of Kubernetes share clusters, which take longer to start than most tests. They are the longest piece, so they
begin first; tests with real instances follow, so that short files remain for the process that has time at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

_HERE = Path(__file__).parent
_FIRST = ("kube", "system")


def order(item: pytest.Item) -> int:
    """The place of a test's room: smaller ones begin earlier."""
    room = item.path.relative_to(_HERE).parts[0]
    return _FIRST.index(room) if room in _FIRST else len(_FIRST)


class Pieces(LoadScopeScheduling):
    """Gives each process a file at a time, in the order of collection."""

    def __init__(self, config: pytest.Config, *others: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, *others)  # type: ignore[arg-type]

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/kube" if file.startswith("tests/kube/") else file
