"""Permanently becoming another user: user id, groups and no capabilities, each step checked."""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple

from headrace.engine.process import linux


class User(NamedTuple):
    """A user from the passwd and group databases. `groups` has `gid` and the supplementary groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def environment(self) -> dict[str, str]:
        """The variables that login(1) sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


class UserError(Exception):
    """The process cannot become a process of the user. The text has the reason."""


def look_up(uid: int) -> User:
    """Look up a user. Raises UserError for an unknown user.

    This queries the name services of the node, which may take long.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise UserError(f"user {uid} has no entry in passwd on {os.uname().nodename}") from None
    groups = tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
    shell = entry.pw_shell or "/bin/sh"
    return User(entry.pw_name, uid, entry.pw_gid, groups, entry.pw_dir or "/", shell)


def become(user: User) -> None:
    """Make this process, which must be root's, a process of `user` permanently.

    Raises UserError; then the process must exit. The order matters: only root may set groups, so the user id comes
    last. Each step is checked against the state that the kernel reports afterwards.
    """
    if user.uid <= 0 or user.gid < 0:
        raise UserError(f"a process cannot become user {user.uid}")
    try:
        linux.leave_keyring()
        os.setgroups(user.groups)
        _require(sorted(os.getgroups()) == list(user.groups), "setgroups")
        os.setgid(user.gid)
        _require(os.getresgid() == (user.gid,) * 3, "setgid")
        os.setuid(user.uid)
        _require(os.getresuid() == (user.uid,) * 3, "setuid")
        linux.drop_capabilities()
        _require(not linux.capabilities(), "capset")
        linux.forbid_new_privileges()
        # The process was root's, so the kernel has made it unreadable for its own user, and it could not write its own
        # files in /proc, such as oom_score_adj. So far, it has only read data of the user.
        linux.become_dumpable()
    except OSError as exc:
        raise UserError(f"cannot become user {user.name} ({user.uid}): {exc.strerror}") from None


def _require(done: bool, call: str) -> None:
    if not done:
        raise UserError(f"{call} had no effect")
