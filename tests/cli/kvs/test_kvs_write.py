"""Writing keys: what is no pair, no tree object or not to be removed is refused before anything is written."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.kvs import requests as kvs
from headrace.cli.kvs import write

DONE = {"rootref": "sha1-0", "rootseq": 7}
GONE = OSError(errno.ENOENT, "no such key")


@pytest.mark.parametrize(("option", "text"), [(["-b"], "sha1-0"), (["-s"], "7"), ([], None)])
def test_values_go_as_they_are_in_one_transaction(
    option: list[str], text: str | None, answers: Any, capsys: Any
) -> None:
    broker = answers(write, kvs__commit=DONE)
    assert write.put([*option, "a=1", "b.c==x=", "d=", "e=\udcff"]) == 0
    ((_, request),) = broker.asked
    values = {op["key"]: kvs.data_of(op["dirent"]) for op in request["ops"]}
    assert values == {"a": b"1", "b.c": b"=x=", "d": b"", "e": b"\xff"}
    assert capsys.readouterr().out == (f"{text}\n" if text else "")


@pytest.mark.parametrize("words", [["a"], ["=a"], [""], ["a=1", "b"]])
def test_what_is_no_pair_is_refused_and_nothing_written(words: list[str], answers: Any) -> None:
    broker = answers(write, kvs__commit=DONE)
    with pytest.raises(CommandError, match="you must specify a value as key=value"):
        write.put(words)
    assert broker.asked == []


@pytest.mark.parametrize("data", [b"", b"{", b"5", b"[]", b"\xff"])
def test_a_tree_object_is_an_object(data: bytes, answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = answers(write, kvs__commit=DONE)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(CommandError, match=r"^a: not a tree object: "):
        write.put(["-t", "a=-"])
    assert broker.asked == []


def test_a_dash_is_standard_input_only_for_raw_values(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"in\xff")))
    broker = answers(write, kvs__commit=DONE)
    write.put(["a=-"])
    write.put(["-r", "a=-"])
    assert [kvs.data_of(request["ops"][0]["dirent"]) for _, request in broker.asked] == [b"-", b"in\xff"]


def test_only_what_is_there_and_empty_is_unlinked(answers: Any) -> None:
    folder, value = {"val": {"type": "dirref", "data": ["x"]}}, {"val": {"type": "val", "data": ""}}
    full, empty = ({"val": {"type": "dir", "data": data}} for data in ({"a": 1}, {}))
    broker = answers(write, kvs__lookup=[value, folder, empty], kvs__commit=DONE)
    assert write.unlink(["a", "b"]) == 0
    assert [op["key"] for op in broker.asked[-1][1]["ops"]] == ["a", "b"]
    for given, text in (([folder, full], "Directory not empty"), ([GONE], "No such file or directory")):
        broker = answers(write, kvs__lookup=given, kvs__commit=DONE)
        with pytest.raises(CommandError, match=f"^cannot unlink 'a': {text}$"):
            write.unlink(["a"])
        assert "kvs.commit" not in dict(broker.asked)


def test_force_overlooks_what_is_not_there_and_commits_nothing_then(answers: Any) -> None:
    broker = answers(write, kvs__lookup=GONE, kvs__commit=DONE)
    assert write.unlink(["-f", "a", "b"]) == 0
    assert [topic for topic, _ in broker.asked] == ["kvs.lookup"] * 2
    broker = answers(write, kvs__lookup=OSError(errno.EPERM, ""), kvs__commit=DONE)
    with pytest.raises(CommandError, match="Operation not permitted"):
        write.unlink(["-f", "a"])


def test_a_move_removes_the_source_only_when_the_copy_is_there(answers: Any) -> None:
    broker = answers(write, kvs__lookup={"val": kvs.val(b"x")}, kvs__commit=OSError(errno.ENOSPC, "full"))
    with pytest.raises(CommandError, match=r"^a: No space left on device$"):
        write.move(["-D", "other", "a", "b"])
    assert [(topic, request["namespace"]) for topic, request in broker.asked] == [
        ("kvs.lookup", "primary"),
        ("kvs.commit", "other"),
    ]
