"""Who has the role ADMIN."""

from __future__ import annotations

import grp
import os
import pwd
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.local import is_admin


@pytest.mark.parametrize(
    ("admin", "who"),
    [
        ({}, []),
        ({"users": ["alice"]}, [1]),
        ({"groups": ["operators"]}, [2]),
        ({"users": ["alice"], "groups": ["operators"]}, [1, 2]),
        ({"users": ["carol"], "groups": ["nobody"]}, []),
    ],
)
def test_users_and_members_of_groups_have_it(monkeypatch: Any, admin: dict[str, Any], who: list[int]) -> None:
    names = {1: "alice", 2: "bob"}
    # Bob is in the group 7, and in one without a name.
    groups = {"alice": [100], "bob": [100, 7, 8]}

    def user(uid: int) -> SimpleNamespace:
        return SimpleNamespace(pw_name=names[uid], pw_gid=100)

    def group(gid: int) -> SimpleNamespace:
        return SimpleNamespace(gr_name={100: "users", 7: "operators"}[gid])

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, _gid: groups[name])
    # The third user is no user of this system.
    assert [uid for uid in (1, 2, 3) if is_admin({"roles": {"admin": admin}}, uid)] == who
