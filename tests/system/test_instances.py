"""Instances of every kind: sizes, trees, nesting, launchers, MPI; and what is left when they or their parts die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from instance import FLUX, clean_env, processes_with, start

from waiting import until

MPI = Path(sys.executable).parent


@pytest.mark.parametrize(("size", "topo"), [(1, "kary:32"), (4, "kary:2"), (16, "kary:3")])
def test_a_job_on_every_broker_prints_once_each(size, topo):
    done = start(f"--test-size={size}", f"-Stbon.topo={topo}", f"flux run -N{size} -l true; flux run -N{size} hostname")
    assert len(done.out.splitlines()) == size
    assert done.rc == 0
    assert not done.left


def test_64_brokers_exchange_by_pmi_and_leave_nothing():
    done = start("--test-size=64", "flux run -N64 flux pmi exchange; flux overlay status | grep -c full", timeout=110)
    assert "completed pmi exchange on 64 tasks" in done.out
    assert done.out.splitlines()[-1] == "64"
    assert not done.left


def test_instances_nest_three_levels_deep():
    inner = "flux getattr instance-level; flux run hostname | wc -l"
    done = start("--test-size=2", f"flux alloc -N2 flux alloc -N2 sh -c '{inner}; flux getattr size'")
    assert done.out.splitlines() == ["2", "1", "2"]
    assert not done.left


def test_a_job_is_told_the_level_of_the_instance_that_it_may_be():
    # As Flux tells it, so that a broker of Flux in a job of ours has its level, too.
    level = "flux pmi get flux.instance-level"
    assert start("--test-size=1", f"flux run {level}; flux run flux start flux run {level}").out == "1\n2\n"


def test_a_batch_script_runs_in_an_instance_of_its_own(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n# flux: -N2\n# flux: --output=out.txt\nflux getattr size\nflux getattr instance-level\n"
    )
    done = start("--test-size=2", f"cd {tmp_path}; flux batch job.sh >/dev/null; flux queue drain; cat out.txt")
    assert done.out == "2\n1\n"


def test_the_initial_programs_status_is_the_instances():
    assert start("exit 5").rc == 5
    assert start("--test-size=3", "nosuchprogram").rc == 127


def test_shutdown_ends_an_instance_and_its_jobs():
    done = start("--test-size=2", "flux submit -N2 sleep 1000 >/dev/null; flux shutdown; sleep 1000", timeout=240)
    assert done.rc == 129
    assert not done.left


def test_kill_9_of_a_follower_is_noticed_and_the_rest_works_on():
    script = """
    PID=$(flux exec -r 2 flux getattr broker.pid); kill -9 $PID
    until flux overlay status | grep -q lost; do sleep .02; done
    flux overlay status; flux run -N3 hostname | wc -l; flux resource list -s down -no {nnodes}
    """
    done = start("--test-size=4", "--test-exit-mode=leader", script, timeout=240)
    assert "lost" in done.out
    assert "\n3\n" in done.out
    assert done.out.rstrip().endswith("1")
    assert not done.left


def test_kill_9_of_the_lead_leaves_no_process(tmp_path):
    mark = f"HR_TEST={tmp_path}"
    process = subprocess.Popen(
        [FLUX, "start", "--test-size=2", "flux submit -N2 sleep 1000 >/dev/null; flux getattr broker.pid; sleep 1000"],
        env=clean_env(HR_TEST=str(tmp_path), TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.wait(timeout=60)
    until(lambda: processes_with(mark) + os.listdir(tmp_path) == [])


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--test-size=3", "flux run -N3 sh -c 'echo begun; exec sleep 1000'"],
        ["flux submit setsid sleep 1000 >/dev/null; echo begun; sleep 1000 & wait"],
    ],
)
def test_kill_9_of_flux_start_ends_its_brokers_and_everything_they_run(arguments: list[str], group: bool) -> None:
    """Of its process alone, and of its process group, as `timeout -s KILL` does it."""
    with tempfile.TemporaryDirectory(prefix="hr-", dir="/tmp") as folder:
        process = subprocess.Popen(
            [FLUX, "start", *arguments],
            env=clean_env(HR_TEST=folder, TMPDIR=folder),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            if group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        deadline = time.monotonic() + 60
        while left := processes_with(f"HR_TEST={folder}") + os.listdir(folder):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MPI program that passes its rank around, built with the mpich of the test extras."""
    folder = tmp_path_factory.mktemp("mpi")
    source = folder / "ring.c"
    source.write_text(
        textwrap.dedent(
            """
            #include <mpi.h>
            #include <stdio.h>
            int main(int argc, char **argv) {
                int rank, size, sum = 0, here, left;
                MPI_Init(&argc, &argv);
                MPI_Comm_rank(MPI_COMM_WORLD, &rank);
                MPI_Comm_size(MPI_COMM_WORLD, &size);
                here = rank;
                for (int hop = 0; hop < size; hop++) {
                    MPI_Sendrecv(&here, 1, MPI_INT, (rank + 1) % size, 0, &left, 1, MPI_INT,
                                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    here = left;
                    sum += here;
                }
                if (rank == 0) printf("ring of %d: %d\\n", size, sum);
                MPI_Finalize();
                return 0;
            }
            """
        )
    )
    assert (MPI / "mpicc").exists(), "the test extras bring mpich: pip install -e '.[test]'"
    program = folder / "ring"
    subprocess.run([str(MPI / "mpicc"), "-o", str(program), str(source)], check=True, env=clean_env())
    return str(program)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_mpi_ring_on_brokers(size, ring):
    ntasks = max(size, 2)
    done = start(f"--test-size={size}", f"flux run -N{size} -n{ntasks} {ring}", timeout=240)
    assert done.out == f"ring of {ntasks}: {ntasks * (ntasks - 1) // 2}\n", done.err
    assert not done.left


def test_mpiexec_boots_an_instance():
    mpiexec = MPI / "mpiexec"
    assert mpiexec.exists(), "the test extras bring mpich: pip install -e '.[test]'"
    done = start("flux getattr size; flux run -N4 hostname | wc -l", prefix=(str(mpiexec), "-n", "4"), timeout=240)
    assert done.out.splitlines() == ["4", "4"]
    assert not done.left


@pytest.mark.parametrize("kind", ["pmi2", "slurm"])
def test_srun_boots_an_instance_by_pmi2_and_by_its_variables_alone(kind, tmp_path):
    """The stand-in gives what srun gives; without PMI brokers meet in a folder and talk over TCP."""
    launcher = (sys.executable, str(Path(__file__).parent / "launchers.py"), kind, "3")
    script = "flux getattr size; flux run -N3 hostname | wc -l; flux getattr broker.boot-method"
    done = start(script, prefix=launcher, HEADRACE_SLURM_DIR=str(tmp_path / "meet"))
    assert done.out.splitlines() == ["3", "3", kind], done.err
    assert not done.left
    assert not (tmp_path / "meet").exists() or not list((tmp_path / "meet").iterdir())


def test_a_bootstrap_table_boots_brokers_with_a_certificate(tmp_path):
    cert = tmp_path / "curve.cert"
    subprocess.run([FLUX, "keygen", str(cert)], check=True, env=clean_env())
    config = tmp_path / "conf.toml"
    config.write_text(
        textwrap.dedent(
            f"""
            [bootstrap]
            curve_cert = "{cert}"
            default_bind = "ipc://{tmp_path}/%h"
            default_connect = "ipc://{tmp_path}/%h"
            hosts = [{{host = "fake[0-2]"}}]
            """
        )
    )
    followers = [
        subprocess.Popen([FLUX, "broker", "-c", str(config)], env=clean_env(FLUX_FAKE_HOSTNAME=f"fake{rank}"))
        for rank in (1, 2)
    ]
    done = start("-c", str(config), "flux getattr hostlist; flux run -N3 hostname | wc -l", FLUX_FAKE_HOSTNAME="fake0")
    assert done.out.splitlines() == ["fake[0-2]", "3"], done.err
    for follower in followers:
        assert follower.wait(timeout=60) == 0


def test_another_uid_gets_nothing(tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    assert shutil.which("setpriv"), "setpriv of util-linux"
    script = "chmod 755 $TMPDIR $TMPDIR/flux-*; setpriv --reuid=65534 --clear-groups flux getattr size; echo rc=$?"
    done = start(script)
    assert done.out == "rc=1\n"


def test_the_time_limit_of_a_batch_job_ends_its_instance_and_its_script(tmp_path: Path) -> None:
    script = tmp_path / "long.sh"
    script.write_text("#!/bin/sh\nsleep 100; echo after\n")
    submit = f"J=$(flux batch --output={tmp_path}/out -n1 -t 1s {script}); flux queue drain"
    done = start(f"{submit}; flux jobs -no '{{status}} {{returncode}}' $J")
    assert (done.out, done.rc) == ("TIMEOUT 142\n", 0)
    assert "after" not in (tmp_path / "out").read_text()
    assert not done.left


def test_an_instance_in_the_run_directory_of_another_is_refused_and_the_other_goes_on(tmp_path):
    rundir = f"-Srundir={tmp_path}/run"
    begin = f"{FLUX} start {rundir} flux getattr size; echo $?"
    done = start("-s1", f"{FLUX} start {rundir} '{begin}; flux getattr rank'", timeout=240)
    assert done.out == "1\n0\n"
    assert f"cannot start: {tmp_path}/run/local-0: another instance listens there" in done.err
    assert not done.left
