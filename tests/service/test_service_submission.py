"""The one reader of submissions, and that the forms of `/v1` and of the page say the same of the same mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.service import submission
from headrace.service.fields import BadFields
from headrace.service.jobs import Refused
from headrace.service.pages import submission as form
from headrace.service.rest.v1 import submission as v1
from headrace.service.settings import Settings

HERE = Settings(directory="/here", nodes=4, gpus=False)
# Names of /v1 for fields that have others there.
V1 = {"nodes": "num_nodes", "tasks": "num_tasks", "env": "envars", "options": "option_flags", "cwd": "workdir"}


def problems(**given: Any) -> list[tuple[str, str]]:
    with pytest.raises(BadFields) as caught:
        submission.read(given, HERE)
    return caught.value.problems


@pytest.mark.parametrize(
    "given",
    [
        {"command": ""},
        {"command": "'"},
        {"command": "a\0"},
        {"command": "a", "nodes": 0},
        {"command": "a", "nodes": 5},
        {"command": "a", "tasks": 1 << 40},
        {"command": "a", "cores_per_task": -1},
        {"command": "a", "gpus_per_task": 1},
        {"command": "a", "nodes": 3, "tasks": 2},
        {"command": "a", "exclusive": True},
        {"command": "a", "env": {"": "x"}},
        {"command": "a", "cwd": "/" + "x" * 4095},
        {"command": "a", "nodes": 5, "exclusive": True, "gpus_per_task": 1},
    ],
)
def test_every_interface_says_the_same_of_a_wrong_field(given: dict[str, Any]) -> None:
    expected = problems(**given)
    with pytest.raises(Refused) as caught:
        v1.jobspec({V1.get(name, name): value for name, value in given.items()}, HERE)
    said = [f"{V1.get(name, name)} {text}".replace(", or script in its place", "") for name, text in expected]
    assert caught.value.problems == said
    texts = {name: "on" if value is True else str(value) for name, value in given.items()}
    if "env" in given:
        texts["env"] = "=x"
    found = form.read({**form.EMPTY, "tasks": "", **texts}, HERE)
    assert found.job is None
    assert {name: text.replace("-1", "") for name, text in found.problems.items()} == dict(expected)


@pytest.mark.parametrize("name", ["name", "queue", "bank", "project"])
def test_a_name_of_more_than_255_bytes_is_refused_by_its_field(name: str) -> None:
    submission.read({"command": "a", name: "n" * 255}, HERE)
    assert problems(command="a", **{name: "é" * 128}) == [(name, "must have 255 bytes at most, not 256")]


def test_every_interface_makes_the_same_jobspec() -> None:
    given = {"command": "a 'b c'", "nodes": 2, "tasks": 4, "cores_per_task": 3, "env": {"X": "1"}, "duration": 120}
    made = submission.read(given, HERE).jobspec
    assert made["attributes"]["system"]["cwd"] == "/here"
    assert v1.jobspec({"runtime": 2, **{V1.get(k, k): v for k, v in given.items() if k != "duration"}}, HERE) == made
    assert "cwd" not in submission.read(given, replace(HERE, directory="")).jobspec["attributes"]["system"]
    texts = {**{name: str(value) for name, value in given.items()}, "env": "X=1", "duration": "2"}
    assert form.read({**form.EMPTY, **texts}, HERE).job == (made, 16)


def test_a_whole_jobspec_is_taken_as_it_is() -> None:
    assert submission.read({"jobspec": {"version": 1}, "urgency": "hold"}, HERE) == ({"version": 1}, 0)
    assert problems(jobspec={}, command="a")[0][0] == "command"


def test_a_job_once_more_keeps_what_is_not_changed() -> None:
    made = submission.read({"command": "a", "name": "one", "cwd": "/x"}, HERE).jobspec
    again = submission.resubmission(made, {"name": "two", "duration": "1h"})
    assert again.jobspec["attributes"]["system"]["job"]["name"] == "two"
    assert again.jobspec["attributes"]["system"]["cwd"] == "/x"


def test_an_environment_has_what_is_said_and_four_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_TOKEN", "x")
    assert submission.environment({"A": "b"}).keys() == {"A", "HOME", "USER", "LOGNAME", "PATH"}
    assert submission.environment({"HOME": "/x"})["HOME"] == "/x"
