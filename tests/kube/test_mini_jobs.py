"""`headrace mini status|logs|connect job/NAME` on real pods of a labelled Job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kubecluster.cluster import Cluster
from labelled_jobs import Jobs
from patience import PATIENCE, until
from running_operator import RunningOperator

HEADRACE = str(Path(sys.executable).parent / "headrace")
Mini = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def jobs(cluster: Cluster, operator: RunningOperator, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


@pytest.fixture
def mini(jobs: Jobs) -> Mini:
    """Run `headrace mini COMMAND ...` in the test's namespace."""

    def run(command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADRACE, "mini", command, "-n", jobs.namespace, *words],
            env={**os.environ, "KUBECONFIG": str(jobs.cluster.kubeconfig)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


def test_a_job_is_waited_for_with_the_exit_code_of_its_command_and_has_its_log(jobs: Jobs, mini: Mini) -> None:
    jobs.create("ends", "sh", "-c", "echo to the log; exit 3", options="{run: program}")
    done = mini("status", "--wait", "--json", "job/ends")
    assert done.returncode == 3, done.stderr
    status = json.loads(done.stdout)["status"]
    assert (status["phase"], status["exitCode"], status["reason"]) == ("Failed", 3, "the job ended with exit code 3")
    assert "to the log\n" in mini("logs", "-f", "job/ends").stdout
    told = mini("connect", "job/ends", "flux", "getattr", "size")
    assert (told.returncode, "Job ends has ended (Failed, exit code 3)" in told.stderr) == (1, True)


def test_a_command_runs_in_a_cluster_that_stays(jobs: Jobs, mini: Mini) -> None:
    jobs.create("stays", options="{interactive: true}")
    until(lambda: "BrokersUp" in dict(jobs.events("stays")))
    done = mini("connect", "job/stays", "flux", "run", "-N2", "-l", "sh", "-c", "echo $JOB_COMPLETION_INDEX")
    assert sorted(done.stdout.split("\n")) == ["", "0: 0", "1: 1"], done.stderr
    # The Job counts its pods a little later.
    until(lambda: "Running" in mini("status", "job/stays").stdout)
