"""Shell text that no shell reads is refused, with its field; what runs is not, however it is put together."""

from __future__ import annotations

from typing import Any

import pytest

from minicluster.api.specs import problems

FIRST = "spec.containers[0]"


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"command": "x", **fields}]}


def test_the_field_and_the_place_of_an_open_quote_are_told() -> None:
    told = "is no shell text: the quote that begins in line 2 is never closed: 's up\""
    assert problems(container(command='echo "a"\n  echo it\'s up"')) == {f"{FIRST}.command": told}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (container(commands={"prefix": "env 'A"}), f"{FIRST}.commands.prefix"),
        ({"flux": {"submitCommand": 'flux submit "-N1'}}, "spec.flux.submitCommand"),
        ({"flux": {"optionFlags": "--env='A"}, **container(batch=True)}, "spec.flux.optionFlags"),
        ({"size": 2, **container(commands={"workerPre": "echo it's"})}, f"{FIRST}.commands.workerPre"),
        (container(commands={"post": "echo it's"}), f"{FIRST}.commands.post"),
        (container(command="echo it's", batch=True, batchRaw=True), f"{FIRST}.command"),
        (
            {"containers": [{"runFlux": True, "command": "x"}, {"name": "s", "command": "echo it's"}]},
            "spec.containers[1].command",
        ),
        (
            {"containers": [{"runFlux": True}, {"name": "s", "commands": {"servicePre": "echo it's"}}]},
            "spec.containers[1].commands.servicePre",
        ),
    ],
)
def test_each_text_that_a_shell_of_ours_runs_is_looked_at(spec: dict[str, Any], path: str) -> None:
    assert list(problems(spec)) == [path]


@pytest.mark.parametrize(
    "spec",
    [
        container(command="echo it\\'s"),
        container(command="# it's a comment\necho hello"),
        container(command="bash -c 'a\n  b'"),
        container(command="c'", commands={"prefix": "sh -c 'a b"}),
        container(commands={"init": "text='a", "pre": "b'"}),
        container(commands={"workerPre": "echo it's"}),
        container(command="", commands={"script": "#!/usr/bin/env python3\nprint('''it's''')"}),
        container(command="echo $(cat <<EOF\nit's\nEOF\n)"),
        container(command="echo $NAME's", batch=True),
        container(command="echo \\\\'a", batch=True),
        container(command="# it's\ntrue", batch=True),
        container(commands={"pre": "[ -e /data ] || exit 1\necho it's"}),
        {"containers": [{"runFlux": True}, {"name": "s", "command": "it's", "noWrapEntrypoint": True}]},
    ],
)
def test_what_runs_is_taken(spec: dict[str, Any]) -> None:
    assert problems(spec) == {}


def test_a_text_of_a_part_that_is_wrong_itself_is_not_told_of() -> None:
    spec = {"containers": [{"command": "echo it's", "batch": "yes"}]}
    assert list(problems(spec)) == [f"{FIRST}.batch"]
