"""The shell of a user who names none."""

from __future__ import annotations

import pwd
from typing import Any

import pytest

from headrace.wire.client.usershell import user_shell


def login_shell(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    def entry(_uid: int) -> Any:
        if not shell:
            raise KeyError("uid not found")
        return pwd.struct_passwd(("me", "x", 1, 1, "", "/", shell))

    monkeypatch.setattr(pwd, "getpwuid", entry)


def test_shell_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    login_shell(monkeypatch, "/bin/cat")
    assert user_shell({"SHELL": "/some/zsh"}) == "/some/zsh"


@pytest.mark.parametrize("env", [{}, {"SHELL": ""}])
def test_the_login_shell_comes_next(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    login_shell(monkeypatch, "/bin/cat")
    assert user_shell(env) == "/bin/cat"


@pytest.mark.parametrize("shell", ["", "/no/such/shell", "/usr/sbin/nologin", "/bin/false"])
def test_bin_sh_is_left_when_there_is_no_login_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    login_shell(monkeypatch, shell)
    assert user_shell({}) == "/bin/sh"
