"""Reading keys: which options go together, and what is said of what is not there."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.kvs import read
from headrace.cli.kvs import requests as kvs


def test_the_first_key_that_is_not_there_ends_it_after_those_before(answers: Any, capfdbinary: Any) -> None:
    answers(read, kvs__lookup=[{"val": kvs.val(b"\xff")}, {"val": kvs.val(b"")}, OSError(errno.ENOENT, "")])
    with pytest.raises(CommandError, match=r"^c: No such file or directory$"):
        read.get(["-l", "a", "b", "c", "d"])
    assert capfdbinary.readouterr().out == b"a=\xff\nb="


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--at={", "a"], "--at={: give a tree object, as `flux kvs getroot` prints it"),
        (["--at=", "a"], "--at=: give a tree object"),
        (["--stream", "--at={}", "a"], "--stream cannot be used with --treeobj or --at"),
        (["--stream", "--treeobj", "a"], "--stream cannot be used with --treeobj or --at"),
        (["--watch", "--count=x", "a"], "requires an integer argument, got 'x'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(argv: list[str], text: str, answers: Any) -> None:
    broker = answers(read)
    with pytest.raises(CommandError) as refused:
        read.get(argv)
    assert text in refused.value.text
    assert broker.asked == []


def test_a_watch_ends_after_so_many_changes(answers: Any, capfdbinary: Any) -> None:
    answers(read, kvs_watch__lookup=[{"val": kvs.val(b"%d" % number)} for number in range(5)])
    assert read.get(["-w", "-c", "2", "a"]) == 0
    assert capfdbinary.readouterr().out == b"0\n1\n"


@pytest.mark.parametrize(("option", "shown"), [([], "other::x"), (["-o"], "other"), (["-k"], "x")])
def test_a_link_to_another_namespace_is_shown_whole_or_in_part(
    option: list[str], shown: str, answers: Any, capsys: Any
) -> None:
    target = {"val": {"type": "symlink", "data": {"namespace": "other", "target": "x"}}}
    answers(read, kvs__lookup=target)
    assert read.readlink([*option, "a"]) == 0
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize("text", ["x", "-1", "", "1.5", "\u00b2"])
def test_a_version_is_a_whole_number(text: str, answers: Any) -> None:
    broker = answers(read)
    with pytest.raises(CommandError, match=f"^invalid version '{text}'$"):
        read.wait(["--", text])
    assert broker.asked == []


def test_a_namespace_that_is_not_there_is_named(answers: Any) -> None:
    for command in (read.getroot, read.version):
        answers(read, kvs__getroot=OSError(errno.ENOTSUP, ""))
        with pytest.raises(CommandError, match=r"^nosuch: Operation not supported$"):
            command(["-N", "nosuch"])


def test_the_environment_names_a_namespace_and_an_option_another(
    answers: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("FLUX_KVS_NAMESPACE", "mine")
    broker = answers(read, kvs__getroot={"rootseq": 3})
    read.version([])
    read.version(["-N", "other"])
    assert [request["namespace"] for _, request in broker.asked] == ["mine", "other"]
    assert capsys.readouterr().out == "3\n3\n"
