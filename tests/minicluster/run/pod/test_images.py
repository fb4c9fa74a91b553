"""Containers of many images: without a shell, without /tmp, HOME or the user's name, read-only, of any user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pods import Pods, pods, told

_NO_PROGRAMS = {"POD_WITHOUT": "/usr/bin:/usr/sbin:/usr/local/bin", "PATH": "/usr/bin"}


@pytest.fixture
def world(tmp_path: Path, view: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        made.view = view
        yield made


def test_an_image_without_a_shell_runs_words(world: Pods) -> None:
    program = "/mnt/flux/view/libexec/python3 -c 'print(6)'"
    lead, follower = world.start_all(told({"command": program}, tasks=2), **_NO_PROGRAMS)
    assert (lead.wait(), follower.wait(), *lead.output()) == (0, 0, "6\n6\n", "")


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"command": "true", "commands": {"pre": "x"}}, "commands.init, pre, brokerPre"),
        ({"command": "echo $HOME"}, "the command needs"),
    ],
)
def test_what_needs_a_shell_is_named_where_there_is_none(world: Pods, container: dict[str, object], field: str) -> None:
    (lead,) = world.start_all(told(container, size=1), **_NO_PROGRAMS)
    assert lead.wait() == 1
    assert "this image has no shell (bash or sh)" in lead.output()[1]
    assert field in lead.message()["reason"]


def test_any_user_runs_in_a_read_only_image_without_name_home_or_tmp(world: Pods) -> None:
    command = "sh -c 'id -u; echo $HOME; mktemp >&2'"
    lead, follower = world.start_all(told({"command": command}, tasks=0), POD_UID="12345", POD_WITHOUT="/etc")
    assert (lead.wait(), follower.wait()) == (0, 0), (lead.output(), follower.output())
    # What the two tasks say comes in any order.
    assert sorted(lead.output()[0].splitlines()) == ["", "", "12345", "12345"]
    assert lead.output()[1].startswith("/mnt/flux/")


def test_a_home_that_is_there_stands_in_for_none(world: Pods) -> None:
    (lead,) = world.start_all(told({"command": "sh -c 'echo $HOME'"}, size=1), HOME="/", POD_WITHOUT="")
    assert (lead.wait(), lead.output()[0]) == (0, "/\n")
