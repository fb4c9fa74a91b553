"""Directories of the key-value store: columns, and keys that are none."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.kvs import list as kvs_list
from headrace.cli.kvs import requests as kvs


def folder(**entries: str) -> dict[str, Any]:
    return {"val": {"type": "dir", "data": {name: {"type": kind} for name, kind in entries.items()}}}


NAMES = {name: "val" for name in ("a", "bb", "ccc", "d", "e")}


@pytest.mark.parametrize(
    ("option", "lines"),
    [
        (["-w", "14"], ["a      d", "bb     e", "ccc"]),
        (["-w", "0"], ["a      bb     ccc    d      e"]),
        (["-w", "1"], ["a", "bb", "ccc", "d", "e"]),
        (["-1"], ["a", "bb", "ccc", "d", "e"]),
    ],
)
def test_names_are_in_columns_downwards(option: list[str], lines: list[str], answers: Any, capsys: Any) -> None:
    answers(kvs_list, kvs__lookup=folder(**NAMES))
    assert kvs_list.ls(option) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_an_empty_directory_prints_nothing(answers: Any, capsys: Any) -> None:
    answers(kvs_list, kvs__lookup=folder())
    assert kvs_list.ls([]) == kvs_list.dir_([]) == 0
    assert capsys.readouterr().out == ""


def test_a_directory_that_is_empty_is_shown_among_all_keys(answers: Any, capsys: Any) -> None:
    answers(kvs_list, kvs__lookup=[folder(d="dir", e="dir"), folder(), folder(s="dir"), folder()])
    assert kvs_list.dir_(["-R", "-d", "top"]) == 0
    assert capsys.readouterr().out.splitlines() == ["top.d.", "top.e.s."]


def test_what_is_not_there_or_no_directory_is_said_and_the_rest_shown(answers: Any, capsys: Any) -> None:
    gone, value = OSError(errno.ENOENT, ""), {"val": kvs.val(b"x")}
    answers(kvs_list, kvs__lookup=[gone, value, value, folder(x="symlink", y="dir"), folder(x="symlink", y="dir")])
    assert kvs_list.ls(["-F", "none", "value.", "value", "dir."]) == 1
    shown = capsys.readouterr()
    assert shown.err == "none: No such file or directory\nvalue.: Not a directory\n"
    assert shown.out == "value\n\ndir:\nx@    y.\n"


def test_values_of_a_directory_are_cut_to_the_width_and_need_be_no_text(answers: Any, capfdbinary: Any) -> None:
    entries = {"val": {"type": "dir", "data": {"a": {"type": "val"}}}}
    answers(kvs_list, kvs__lookup=[entries, {"val": kvs.val(b"x" * 100)}])
    assert kvs_list.dir_(["-w", "20"]) == 0
    assert capfdbinary.readouterr().out == b"a = " + b"x" * 13 + b"...\n"


def test_a_directory_that_is_none_is_named(answers: Any) -> None:
    answers(kvs_list, kvs__lookup=OSError(errno.ENOTDIR, ""))
    with pytest.raises(CommandError, match=r"^a: Not a directory$"):
        kvs_list.dir_(["a"])
