"""Becoming another user: tried in processes that this one forks, and only root can."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

import pytest

from headrace.engine.process import linux
from headrace.engine.process.user import User, UserError, become, look_up

ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
SOMEBODY = User("somebody", 61001, 61002, (61002, 61003), "/home/somebody", "/bin/sh")


def in_a_fork(told: Callable[[], str]) -> str:
    """What `told` returns in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, told().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return text


@ROOT
def test_a_process_is_the_users_without_a_way_back() -> None:
    def told() -> str:
        become(SOMEBODY)
        ids = os.getresuid(), os.getresgid(), os.getgroups(), linux.capabilities()
        for back in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.seteuid(0)):
            try:
                back()
            except PermissionError:
                continue
            return "there is a way back"
        # Its own files in /proc are the user's.
        return f"{ids} {os.stat('/proc/self/environ').st_uid}"

    assert in_a_fork(told) == f"{((61001,) * 3, (61002,) * 3, [61002, 61003], 0)} 61001"


@ROOT
def test_a_set_user_id_program_gives_no_privileges_back() -> None:
    def told() -> str:
        become(SOMEBODY)
        with open("/proc/self/status") as file:
            return next(line.split()[1] for line in file if line.startswith("NoNewPrivs:"))

    assert in_a_fork(told) == "1"


@pytest.mark.parametrize(("uid", "gid"), [(0, 61001), (-1, 61001), (61001, -1)])
def test_nobody_becomes_root_or_keeps_an_id(uid: int, gid: int) -> None:
    with pytest.raises(UserError, match=f"cannot become user {uid}"):
        become(SOMEBODY._replace(uid=uid, gid=gid))


@ROOT
def test_a_step_that_fails_or_does_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str:
        try:
            become(SOMEBODY)
        except UserError as exc:
            return str(exc)
        return "became it"

    for step in ("setgroups", "setgid", "setuid"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, lambda _value: None)
            assert in_a_fork(told) == f"{step} had no effect"

    def cannot(_value: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setgid", cannot)
    assert in_a_fork(told) == "cannot become user somebody (61001): Operation not permitted"


def test_a_user_is_known_from_passwd() -> None:
    me = pwd.getpwuid(os.getuid())
    found = look_up(me.pw_uid)
    assert (found.name, found.gid) == (me.pw_name, me.pw_gid) and me.pw_gid in found.groups
    login = {"HOME": me.pw_dir, "USER": me.pw_name, "LOGNAME": me.pw_name, "SHELL": me.pw_shell}
    assert found.environment() == login
    with pytest.raises(UserError, match="user 61999 has no entry in passwd on "):
        look_up(61999)
