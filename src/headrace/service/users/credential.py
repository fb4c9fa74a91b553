"""Who a request is from, as the broker sees it: every message has a userid and a rolemask (RFC 12)."""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple

from headrace.formats.spec import credential
from headrace.formats.spec.message import ROLE_ADMIN, ROLE_LOCAL, ROLE_OWNER, ROLE_USER


class Identity(NamedTuple):
    """A user of the service; `rolemask` is that of RFC 12. The owner of the instance may stamp his requests with it."""

    name: str
    userid: int
    rolemask: int

    @property
    def sees_all(self) -> bool:
        """Whether jobs of other users are shown to this user."""
        return bool(self.rolemask & (ROLE_OWNER | ROLE_ADMIN))

    def environment(self) -> dict[str, str]:
        """Variables by which programs of the owner's process speak to the broker with this credential."""
        if self.rolemask & ROLE_OWNER:
            return {}
        return credential.environment(self.userid, self.rolemask)


def owner() -> Identity:
    """The user whose process this is, who owns the instance."""
    userid = os.getuid()
    try:
        name = pwd.getpwuid(userid).pw_name
    except KeyError:
        name = str(userid)
    return Identity(name, userid, ROLE_OWNER | ROLE_LOCAL)


def user(name: str, userid: int, admin: bool = False) -> Identity:
    """A user of a service that has several."""
    return Identity(name, userid, ROLE_USER | (ROLE_ADMIN if admin else 0))
