"""Debian's Open MPI in pods: ranks find each other through the view's PMIx, whatever libpmix their image has."""

from __future__ import annotations

from collections.abc import Callable

from running_operator import MiniClusters


def test_ranks_of_two_pods_meet(miniclusters: MiniClusters, image: Callable[[str], str]) -> None:
    containers = [{"image": image("openmpi"), "command": "mpi-hello"}]
    miniclusters.apply("mpi", size=2, tasks=4, containers=containers)
    status = miniclusters.phase("mpi", "Finished")
    log = miniclusters.log("mpi").splitlines()
    assert status["exitCode"] == 0, log
    said = sorted(line for line in log if line.startswith(("rank ", "sum ")))
    assert said == [*(f"rank {rank} of 4 on mpi-{rank // 2}" for rank in range(4)), "sum 6"], log
