"""Open MPI programs as jobs: they find each other through PMIx, whether or not anybody asked for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from instance import start

_MPICC = shutil.which("mpicc.openmpi")

pytestmark = pytest.mark.skipif(_MPICC is None, reason="mpicc.openmpi (Debian: libopenmpi-dev) is missing")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    built = tmp_path_factory.mktemp("open-mpi") / "program"
    source = Path(__file__).parent / "programs" / "open_mpi.c"
    subprocess.run([str(_MPICC), str(source), "-o", str(built)], check=True, timeout=60)
    return str(built)


def said(size: int) -> list[str]:
    return [f"{rank} of {size}, sum {sum(range(size))}" for rank in range(size)]


@pytest.mark.parametrize("ntasks", [1, 2])
def test_tasks_of_one_node_meet(program: str, ntasks: int) -> None:
    done = start("flux", "run", f"-n{ntasks}", program)
    assert (done.rc, sorted(done.out.splitlines()), done.left) == (0, said(ntasks), [])


def test_tasks_of_three_brokers_meet_and_their_order_may_be_cyclic(program: str) -> None:
    script = f"flux run -N3 -n6 {program}; flux run -N3 -n6 --taskmap=cyclic -o pmi=pmix {program}"
    done = start("--test-size=3", "sh", "-c", script)
    assert (done.rc, sorted(done.out.splitlines()), done.left) == (0, sorted(said(6) * 2), [])


def test_abort_ends_the_job_with_its_code(program: str) -> None:
    done = start("flux", "run", "-n2", program, "abort")
    assert done.rc == 7
    assert "MPI_Abort: " in done.err and "(task 1, exit code 7)" in done.err


def test_a_task_that_ends_without_the_others_ends_the_job(program: str) -> None:
    done = start("flux", "run", "-n2", "-o", "exit-timeout=1s", program, "exit")
    assert done.rc == 3
    assert "task rank 1 on host" in done.err and "exit-timeout=1s has expired" in done.err
