"""The environment of tasks: from the submitter's, without what belongs to the submitter's instance."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from headrace.engine.process.operations import Start
from headrace.engine.shell.environment import job_environment, task_environment
from headrace.engine.shell.templates import Names
from headrace.formats.spec.idset import Idset


def of_job(base: dict[str, Any], host: str = "") -> dict[str, str]:
    names = Names(1, "f1", "sim", 2, 4, "/tmp/job", 0, host, 0, Idset(), Idset(), [0, 1])
    op = {"idpath": "/f1", "uri": "local:///x", "userid": os.getuid()}
    return job_environment(base, cast(Start, op), names, {})


def test_a_job_gets_its_own_identity_and_the_rest_of_the_submitters_environment() -> None:
    base = {"HOME": "/home/u", "LEVEL": 2, "UNSET": None, "FLUX_JOB_ID": "old", "FLUX_TASK_RANK": "7", "PMI_FD": "3"}
    env = of_job(base)
    assert (env["HOME"], env["LEVEL"], env["FLUX_JOB_ID"], env["FLUX_JOB_SIZE"]) == ("/home/u", "2", "f1", "4")
    assert {"UNSET", "FLUX_TASK_RANK", "PMI_FD"}.isdisjoint(env)


@pytest.mark.parametrize(("base", "host", "found"), [({"HOSTNAME": "login"}, "n1", "n1"), ({}, "n1", None)])
def test_the_name_of_the_submitters_host_becomes_that_of_the_node(
    base: dict[str, str], host: str, found: str | None
) -> None:
    env = of_job(base, host)
    assert env.get("HOSTNAME") == found


@pytest.mark.parametrize(("gpus", "shown"), [(None, None), ("", ""), ("0,1", "0,1")])
def test_a_task_sees_its_gpus_only_where_they_are_dealt_out(gpus: str | None, shown: str | None) -> None:
    job = {"A": "b"}
    env = task_environment(job, 5, 1, gpus)
    assert (env["A"], env["FLUX_TASK_RANK"], env["FLUX_TASK_LOCAL_ID"]) == ("b", "5", "1")
    assert env.get("CUDA_VISIBLE_DEVICES") == shown
    assert job == {"A": "b"}
