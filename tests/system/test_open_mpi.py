"""Open MPI programs as jobs: they find each other through PMIx, whether or not anybody asked for it."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from instance import start

_MPICC = shutil.which("mpicc.openmpi")

pytestmark = pytest.mark.skipif(_MPICC is None, reason="mpicc.openmpi (Debian: libopenmpi-dev) is missing")


def build(folder: Path, name: str, *flags: str) -> str:
    source = Path(__file__).parent / "programs" / f"{name}.c"
    subprocess.run([str(_MPICC), str(source), "-o", str(folder / name), *flags], check=True, timeout=60)
    return str(folder / name)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("open-mpi"), "open_mpi")


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


def test_mpich_which_refuses_to_choose_is_told_pmi_1_unless_that_is_off_or_the_user_has_chosen() -> None:
    script = """
    flux run sh -c 'echo told $MPIR_CVAR_PMI_VERSION'
    MPICH_PMI_VERSION=2 flux run sh -c 'echo own $MPICH_PMI_VERSION $MPIR_CVAR_PMI_VERSION'
    flux run -o pmi=pmix sh -c 'echo pmix $PMIX_RANK $MPIR_CVAR_PMI_VERSION'
    """
    done = start("sh", "-c", script)
    assert (done.rc, done.out.splitlines()) == (0, ["told 1", "own 2", "pmix 0"])


def test_abort_ends_the_job_with_its_code(program: str) -> None:
    done = start("--test-size=2", "flux", "run", "-N2", program, "abort")
    assert done.rc == 7
    assert "MPI_Abort: " in done.err and "(task 1, exit code 7)" in done.err


def test_a_task_that_ends_without_the_others_ends_the_job(program: str) -> None:
    done = start("flux", "run", "-n2", "-o", "exit-timeout=1s", program, "exit")
    assert done.rc == 3
    assert "task rank 1 on host" in done.err and "exit-timeout=1s has expired" in done.err


def test_tasks_ask_for_each_others_values_and_meet_in_groups(tmp_path: Path) -> None:
    pmix = sorted(glob.glob("/usr/lib/*/pmix2/include"))[0]
    client = build(tmp_path, "pmix_client", f"-I{pmix}", "-lpmix")
    done = start("--test-size=3", "flux", "run", "-N3", "-n6", client)
    want = ["0 got 105", "5 got 100", "spawn: NOT-SUPPORTED"]
    assert (done.rc, sorted(done.out.splitlines()), done.left) == (0, want, []), done.err


def test_a_server_that_is_killed_ends_its_own_job_and_not_another(program: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"""
        first=$(flux submit -n1 {program} wait {go}); second=$(flux submit -n1 {program} wait {go})
        for id in $first $second; do
            flux job wait-event -t 30 -p output $id data >/dev/null || exit 99
        done
        task=$(flux job hostpids $second | cut -d: -f2)
        kill -9 $(pgrep -n -P $(ps -o ppid= -p $task) -f headrace.engine.shell.pmix.server)
        flux job status $second; echo second $?
        touch {go}
        flux job status $first; echo first $?
        flux job attach $second
    """
    done = start("sh", "-c", script)
    assert done.out.splitlines()[:2] == ["second 1", "first 0"], done
    assert "has ended (Killed), and tasks cannot continue without it" in done.err
    assert done.left == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a file of the system")
def test_without_libpmix_a_job_that_asks_for_it_says_what_is_missing(tmp_path: Path) -> None:
    hide = f'for folder in /usr/lib/*/pmix2/lib; do mount --bind {tmp_path} "$folder" || exit 99; done; exec "$@"'
    prefix = ("unshare", "-m", "sh", "-c", hide, "sh")
    done = start("sh", "-c", "flux run -o pmi=pmix true; flux run true; echo $?", prefix=prefix)
    assert done.out == "0\n"
    assert "pmi=pmix: there is no libpmix.so.2 on this node" in done.err
