"""Namespaces of the key-value store."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.kvs import namespace


def test_a_namespace_is_its_makers_unless_told_otherwise(answers: Any) -> None:
    broker = answers(namespace, kvs__namespace_create=None)
    assert namespace.namespace(["create", "a", "b"]) == 0
    assert namespace.namespace(["create", "-o", "0x10", "c"]) == 0
    owners = {body["namespace"]: body["owner"] for _, body in broker.asked}
    assert owners == {"a": os.getuid(), "b": os.getuid(), "c": 16}


@pytest.mark.parametrize("owner", ["-5", "4294967296", "root"])
def test_an_owner_is_a_user_id(owner: str, answers: Any) -> None:
    broker = answers(namespace, kvs__namespace_create=None)
    with pytest.raises(CommandError, match="owner"):
        namespace.namespace(["create", "-o", owner, "a"])
    assert broker.asked == []


def test_the_first_that_is_refused_is_named_and_ends_it(answers: Any) -> None:
    broker = answers(namespace, kvs__namespace_remove=[None, OSError(errno.ENOTSUP, "no such"), None])
    with pytest.raises(CommandError) as refused:
        namespace.namespace(["remove", "a", "b", "c"])
    assert refused.value.text == "b: Operation not supported"
    assert [body["namespace"] for _, body in broker.asked] == ["a", "b"]


def test_a_space_of_anyone_has_no_number(answers: Any, capsys: Any) -> None:
    spaces = [{"namespace": "a", "owner": 0xFFFFFFFF, "flags": 0}, {"namespace": "b", "owner": 7, "flags": 1}]
    answers(namespace, kvs__namespace_list={"namespaces": spaces})
    assert namespace.namespace(["list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAMESPACE", "OWNER", "FLAGS"],
        ["a", "-", "0x00000000"],
        ["b", "7", "0x00000001"],
    ]
