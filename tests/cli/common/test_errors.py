"""How a command ends early: what is said, and with which status."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.common.errors import CommandError, missing_extra


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (CommandError("no such job"), "flux-job: no such job\n", 1),
        (CommandError("no more", 2), "flux-job: no more\n", 2),
        (CommandError("flux-run: Cannot connect", bare=True), "flux-run: Cannot connect\n", 1),
        (CommandError("", 3), "", 3),
    ],
)
def test_an_error_is_a_line_after_the_commands_name_and_a_status(
    error: CommandError, said: str, status: int, monkeypatch: Any, capsys: Any
) -> None:
    def fail(_argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("headrace.cli.job.main.main", fail)
    assert main.run_command("job", ["id"], False) == status
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("queue", OSError(errno.EINVAL, "no such queue"), "flux-queue: ERROR: [Errno 22] no such queue\n"),
        ("queue", OSError(errno.ENOSPC, "the disk is full"), "flux-queue: ERROR: the disk is full\n"),
        ("queue", OSError(errno.ENOENT, "Not there", "/a b"), "flux-queue: ERROR: /a b: Not there\n"),
        ("kvs", OSError(errno.EINVAL, "no such key"), "flux-kvs: no such key\n"),
        ("kvs", OSError(errno.ENOENT, "Not there", b"/a b"), "flux-kvs: /a b: Not there\n"),
    ],
)
def test_only_a_brokers_refusal_has_a_number_and_a_file_has_its_path(
    name: str, error: OSError, said: str, monkeypatch: Any, capsys: Any
) -> None:
    def fail(_argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(f"headrace.cli.{name}.main.main", fail)
    assert main.run_command(name, [], False) == 1
    assert capsys.readouterr().err == said


def test_an_extra_that_is_missing_is_named_with_the_way_to_install_it() -> None:
    assert missing_extra("the operator", "kube", ImportError(name="aiohttp")).text == (
        "the operator needs the extra kube (aiohttp is missing): pip install '.[kube]' in a copy of the repository"
    )
