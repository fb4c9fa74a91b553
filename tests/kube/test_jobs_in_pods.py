"""An Indexed Job with the label, in users' images on a real Kubernetes: it says hello, and ends as its command does."""

from __future__ import annotations

import pytest
from kubecluster.cluster import Cluster
from labelled_jobs import Jobs
from running_operator import RunningOperator


@pytest.fixture
def jobs(cluster: Cluster, operator: RunningOperator, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


def test_each_pod_is_a_broker_and_the_job_completes(jobs: Jobs) -> None:
    jobs.create("hello", "flux", "getattr", "rank", size=4)
    end = jobs.ended("hello")
    assert sorted(jobs.log("hello").split()) == ["0", "1", "2", "3"]
    assert (end["kind"], end["exit"], end["reason"]) == ("Complete", 0, "")
    assert list(end["times"]) == ["created", "started", "finished"]
    assert [reason for reason, _ in jobs.events("hello")][-1] == "Finished"


def test_a_command_that_fails_fails_the_job_with_its_exit_code(jobs: Jobs) -> None:
    jobs.create("fails", "sh", "-c", "exit 3")
    end = jobs.ended("fails")
    assert (end["kind"], end["exit"], end["reason"]) == ("Failed", 3, "the job ended with exit code 3")
    assert jobs.exit_code("fails") == 3
    assert len(jobs.pods("fails", 0)) == 1, "it is not tried again"
