"""Shell text that no shell reads is refused, with its field; what runs is not, however it is put together."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import Any

import pytest

import seeds
from headrace.minicluster.api.shell_rules import OpenQuote, open_quote
from minicluster.api.specs import problems

FIRST = "spec.containers[0]"


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"command": "x", **fields}]}


def test_the_field_and_the_place_of_an_open_quote_are_told() -> None:
    told = "is not valid shell text: the quote that begins in line 2 is never closed: 's up\""
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


SHELLS = [shell for shell in (["bash"], ["dash"], ["busybox", "sh"]) if shutil.which(shell[0])]
# Pieces whose order decides what a quote means.
PIECES = (
    *("'", '"', "'", '"', "\\", "\n", " ", "#", "a", "$", "(", ")", "{", "}", "`", "<", "$(", "${", "$((", "))"),
    *("$'", "<<a\n", "case x in a)", ";;", " esac", " # ", "exit\n", "=", ":-", "it's", ";", "|"),
)


@pytest.mark.parametrize(
    ("text", "line", "excerpt"),
    [
        ("echo it's", 1, "'s"),
        ('a\necho "b\nc', 2, '"b...'),
        ('echo "$(hostname \'x)"', 1, "'x)\""),
        ("echo 'a' 'b", 1, "'b"),
        ("echo \\'a '", 1, "'"),
        ("# it's\necho it's", 2, "'s"),
        ("echo a#it's", 1, "'s"),
        ("echo '" + "a" * 100, 1, "'" + "a" * 23 + "..."),
        ("echo 'exit\n", 1, "'exit..."),
    ],
)
def test_a_quote_that_stays_open_is_found(text: str, line: int, excerpt: str) -> None:
    assert open_quote(text) == OpenQuote(line, excerpt)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "echo it\\'s",
        "echo \"it's\" '\"'",
        "echo hi # it's",
        "echo $(echo '(' \"$(echo ')')\")",
        'echo "${a:-it\'s}"',
        "cat <<EOF\nit's\nEOF",
        "echo $'it\\'s'",
        "echo `echo it\\'s`",
        "exit 0\nit's over",
        'echo "$(case a in a) echo \'it"s\';; esac)"',
        "((a=1<<2)); echo 'it'",
        'echo $((1 + 1)) "$((2))"',
    ],
)
def test_what_a_shell_runs_passes(text: str) -> None:
    assert open_quote(text) is None
    assert 0 in [subprocess.run([*shell, "-c", text], check=False).returncode for shell in SHELLS]


def test_no_shell_reads_what_is_said_to_be_open() -> None:
    chance = random.Random(seeds.seed())
    texts = ["".join(chance.choices(PIECES, k=chance.randrange(1, 12))) for _ in range(1200)]
    found = [text for text in texts if open_quote(text)]
    assert len(found) > 100
    for text in found:
        for shell in SHELLS:
            done = subprocess.run([*shell, "-n", "-c", text], capture_output=True, check=False)
            assert done.returncode != 0, (shell, text)
