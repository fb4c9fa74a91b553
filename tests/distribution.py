"""How `pytest -n` shares the tests among its processes.

A process that has time takes the next piece. A piece is a file, or files that share what takes long to start
(TOGETHER). Two processes begin with the pieces of `tests/kube`: each starts a Kubernetes of its own when it comes to
one that needs it, and ends it after its last. These tests wait most of their time, so a third process does the others
meanwhile, those with real instances first: short files remain for the process that has time at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_HERE = Path(__file__).parent
# The number of processes with a Kubernetes.
_CLUSTERS = 2
_FIRST = ("kube", "system")
_KUBE = "tests/kube/"
# By piece: its files in `tests/kube`, without `test_` and `.py`. All others there use `cluster`, the Kubernetes with
# two nodes and real containers, and are a piece each.
TOGETHER = {
    # The control plane alone, and nodes of kwok beside one: 3 s to start.
    "control plane": (
        *("admission", "controller_runtime", "external_metrics", "install", "labelled_jobs", "limiting_policy"),
        *("merges", "objects_accepted", "uninstall", "cluster_kwok", "fluxqueue_kwok", "fluxqueue_store"),
    ),
    # JobSet and Kubeflow Trainer in `cluster`: 25 s. They go on beside all tests that follow, so they are the last.
    "trainer": ("fluxqueue_sets", "jobsets", "trainer", "trainjobs"),
}
_PIECES = {f"{_KUBE}test_{name}.py": piece for piece, names in TOGETHER.items() for name in names}


def piece(file: str) -> str:
    """The piece that a file belongs to, which is named from the root of the repository."""
    return _PIECES.get(file, file)


def order(item: pytest.Item) -> tuple[int, bool]:
    """The place of a test's piece: smaller ones begin earlier."""
    file = item.path.relative_to(_HERE)
    room = file.parts[0]
    place = _FIRST.index(room) if room in _FIRST else len(_FIRST)
    return place, piece(f"tests/{file.as_posix()}") == "trainer"


class Pieces(LoadScopeScheduling):
    """Gives each process a piece at a time, in the order of collection."""

    def __init__(self, config: pytest.Config, *others: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, *others)  # type: ignore[arg-type]

    def _assign_work_unit(self, node: Any) -> None:
        if self.nodes.index(node) >= _CLUSTERS:
            others = (one for one, tests in self.workqueue.items() if not next(iter(tests)).startswith(_KUBE))
            self.workqueue.move_to_end(next(others, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return piece(nodeid.partition("::")[0])
