"""The identity of a user towards the broker: every message has a userid and a rolemask (RFC 12)."""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple

from headrace.formats.spec import credential
from headrace.formats.spec.message import ROLE_ADMIN, ROLE_LOCAL, ROLE_OWNER, ROLE_USER


class Identity(NamedTuple):
    """A user of the service. `rolemask` is as in RFC 12.

    RFC 12 allows the owner of the instance, who runs the service, to stamp requests with another user's identity.
    """

    name: str
    userid: int
    rolemask: int

    @property
    def sees_all(self) -> bool:
        """True if this user may see jobs of other users."""
        return bool(self.rolemask & (ROLE_OWNER | ROLE_ADMIN))

    def environment(self) -> dict[str, str]:
        """Environment variables with which a program of the owner makes requests as this user."""
        if self.rolemask & ROLE_OWNER:
            return {}
        return credential.environment(self.userid, self.rolemask)


def owner() -> Identity:
    """The owner of the instance, who is the user of this process."""
    userid = os.getuid()
    try:
        name = pwd.getpwuid(userid).pw_name
    except KeyError:
        name = str(userid)
    return Identity(name, userid, ROLE_OWNER | ROLE_LOCAL)


def user(name: str, userid: int, admin: bool = False) -> Identity:
    """A user of a service with several users."""
    return Identity(name, userid, ROLE_USER | (ROLE_ADMIN if admin else 0))
