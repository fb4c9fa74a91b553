"""`flux queue list`: what limits are shown as."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from headrace.cli.queue import list as queue_list


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({"min": {"ncores": -1}, "max": {"ncores": -1}}, "0-inf 0 inf"),
        ({"min": {"ncores": 2}, "max": {"ncores": 3}}, "2-3 2 3"),
        ({}, "0-inf 0 inf"),
    ],
)
def test_a_limit_of_minus_one_is_none(answers: Any, capsys: Any, limits: dict[str, Any], shown: str) -> None:
    answers(
        queue_list,
        config__get={"policy": {"limits": {"job-size": limits}}},
        resource__sched_status={"all": None, "down": None, "allocated": None},
        job_manager__queue_status={"enable": True, "start": True},
    )
    fields = "{limits.range.ncores} {limits.min.ncores} {limits.max.ncores}"
    args = argparse.Namespace(format=fields, queue=None, color="never", no_header=True)
    assert queue_list.list_queues(args) == 0
    assert capsys.readouterr().out == shown + "\n"
