from __future__ import annotations

from typing import Any

import pytest

from headrace.service.pages import submission
from headrace.service.settings import Settings

GIVEN = {**submission.EMPTY, "command": "sh -c 'a b'", "cwd": "/d"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": "2", "tasks": "4", "cores_per_task": "3", "gpus_per_task": "1"},
        {"nodes": "2", "tasks": "2", "exclusive": "on"},
        {"kind": "script", "command": "", "script": "#!/bin/sh\ntrue\n", "name": "n"},
        {"dependencies": "afterok:f1\nbegin-time:100\nsingleton\n", "name": "n"},
        {"duration": "1.5h", "queue": "batch", "env": "A=1\nB=x=y\n"},
    ],
)
def test_a_form_that_becomes_a_job_comes_back(changes: dict[str, str]) -> None:
    given = {**GIVEN, **changes}
    found = submission.read(given, Settings(directory="/"))
    assert found.problems == {} and found.job is not None
    back, lost = submission.of_job(found.job.jobspec)
    expected = {**given, "name": back["name"], **({"duration": "1.5h"} if "duration" in changes else {})}
    assert back == expected and lost == []


def test_what_the_form_has_no_field_for_is_named() -> None:
    system: dict[str, Any] = {"constraints": {}, "environment": {"A": "1\n2"}}
    jobspec = {"resources": [{"type": "rack", "count": 1}], "tasks": [], "attributes": {"system": system}}
    assert submission.of_job(jobspec)[1] == ["constraints", "variables of several lines", "its resources"]


def test_an_urgency_is_a_number_or_a_name() -> None:
    for text, number in (("", 16), ("3", 3), ("hold", 0)):
        found = submission.read({**GIVEN, "urgency": text}, Settings(directory="/"))
        assert found.job is not None and found.job.urgency == number
    assert "urgency" in submission.read({**GIVEN, "urgency": "x"}, Settings(directory="/")).problems
