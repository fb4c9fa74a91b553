from __future__ import annotations

from typing import Any

import pytest

from headrace.formats.spec.jobspec import validate
from headrace.service.jobs import Refused
from headrace.service.rest.v1.submission import jobspec, launcher
from headrace.service.settings import Settings


def made(settings: Settings | None = None, **values: Any) -> Any:
    found = jobspec({"command": "true", **values}, settings or Settings(directory="/here"))
    validate(found)
    return found


def system(**values: Any) -> Any:
    return made(**values)["attributes"]["system"]


def test_a_command_alone() -> None:
    found = made(command="echo 'a b' c")
    assert found["tasks"][0]["command"] == ["echo", "a b", "c"]
    assert found["attributes"]["system"]["cwd"] == "/here" and found["attributes"]["system"]["duration"] == 0
    assert found["resources"] == made(num_tasks=1, cores_per_task=1)["resources"]


def test_runtime_is_in_minutes() -> None:
    assert system(runtime=3)["duration"] == 180


def test_nodes_without_tasks_are_the_jobs_alone_with_a_task_on_each() -> None:
    (node,) = made(num_nodes=3)["resources"]
    assert (node["type"], node["count"], node["exclusive"]) == ("node", 3, True)
    (shared,) = made(num_nodes=2, num_tasks=4, gpus_per_task=1)["resources"]
    assert "exclusive" not in shared or not shared["exclusive"]


@pytest.mark.parametrize("given", ["verbose=2,cpu-affinity=per-task", {"verbose": 2, "cpu-affinity": "per-task"}])
def test_shell_options_in_both_forms(given: Any) -> None:
    options = system(option_flags=given)["shell"]["options"]
    assert (options["verbose"], options["cpu-affinity"]) == (2, "per-task")


def test_shell_options_of_the_service_are_defaults() -> None:
    settings = Settings(shell_options={"verbose": 1, "mpi": "none"})
    options = made(settings, option_flags="verbose=2")["attributes"]["system"]["shell"]["options"]
    assert (options["verbose"], options["mpi"]) == (2, "none")


def test_an_option_does_not_name_files_of_this_machine(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text('"x"')
    assert system(option_flags=f"^key={secret}")["shell"]["options"]["^key"] == str(secret)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"command": ""}, ["command is required"]),
        ({"command": None}, ["command is required"]),
        ({"command": []}, ["command is required"]),
        ({"command": ["", "x"]}, ["command is required"]),
        ({"command": "'"}, ["command cannot be split into words: No closing quotation"]),
        ({"command": "a\0b"}, ["NUL"]),
        ({"command": {"a": 1}}, ["must be text"]),
        ({"option_flags": "x"}, ["has 'x', which is not NAME=VALUE"]),
        ({"option_flags": "a=1,x"}, ["has 'x', which is not NAME=VALUE"]),
        ({"option_flags": "-ompi=x"}, ["keys without -o"]),
        ({"option_flags": {"-ompi": "x"}}, ["keys without -o"]),
        ({"option_flags": "=x"}, ["must have a name"]),
        ({"option_flags": "a..b=x"}, ["empty part"]),
        ({"command": ["a", "\ud800"]}, ["halves of characters"]),
        ({"option_flags": [1]}, ["option_flags must be"]),
        ({"option_flags": 5}, ["option_flags must be"]),
        ({"envars": {"\ud800": "x"}}, ["envars has "]),
        ({"envars": "x"}, ["envars must be an object"]),
        ({"envars": ["x"]}, ["envars must be an object"]),
        ({"envars": {"A=": "x"}}, ["not a valid name of a variable"]),
        ({"envars": {"A": ["x"]}}, ["envars has 'A', whose name and value"]),
        ({"envars": {"A": "\0"}}, ["envars has 'A', whose name and value"]),
        ({"num_tasks": 0, "cores_per_task": 0, "num_nodes": -1, "gpus_per_task": -1, "runtime": -1}, ["must be"] * 5),
        ({"num_nodes": 3, "num_tasks": 2}, ["node"]),
        ({"command": "", "envars": "x", "runtime": -1}, ["command", "envars", "runtime"]),
    ],
)
def test_all_that_is_wrong_is_told(values: Any, words: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        made(**values)
    assert len(caught.value.problems) == len(words)
    for word in words:
        assert any(word in problem for problem in caught.value.problems)


def test_exit_on_error_is_no_minus_o() -> None:
    assert system(option_flags="exit-on-error=1")["shell"]["options"]["exit-on-error"] == 1


def test_what_the_deployment_says_there_is() -> None:
    settings = Settings(nodes=2, gpus=False)
    made(settings, num_nodes=2, gpus_per_task=0)
    for values in ({"num_nodes": 3}, {"gpus_per_task": 1}):
        with pytest.raises(Refused):
            made(settings, **values)
    made(num_nodes=1000, gpus_per_task=1)


def test_known_launchers() -> None:
    assert launcher({"command": "/opt/bin/nextflow run x"})[0] == ["/opt/bin/nextflow", "run", "x"]
    with pytest.raises(Refused, match="snakemake and nextflow"):
        launcher({"command": "make"})
