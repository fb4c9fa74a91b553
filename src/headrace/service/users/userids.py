"""Checks that the userids of users in the store agree with passwd.

The store never changes a userid by itself, but passwd may change: a user gets another userid, a freed userid is given
to a new user, or a name is added. Jobs would then run as another user of the machine, so such a user is refused.
"""

from __future__ import annotations

import asyncio
import pwd
import time
from collections.abc import Callable

# Seconds for which an answer of passwd is cached: requests are frequent, and a name service may be slow.
LASTING = 5.0


class UseridMismatch(PermissionError):
    """A user's userid differs from the one in passwd. The text is for users and administrators."""


def mismatch(name: str, userid: int, must_be_there: bool = False) -> str:
    """How a user of the store differs from passwd, and how to fix it; "" if they agree.

    If passwd has neither the name nor the userid, this is an error only with `must_be_there`.
    """
    remedy = f"headrace api users renumber {name}, or users remove {name}"
    in_passwd = userid_in_passwd(name)
    if in_passwd == userid:
        return ""
    if in_passwd is not None:
        return f"the userid of '{name}' is {userid} in this service and {in_passwd} in passwd: {remedy}"
    other = name_in_passwd(userid)
    if other is not None:
        return f"the userid of '{name}' in this service, {userid}, is that of '{other}' in passwd: {remedy}"
    return f"'{name}' has no entry in passwd: headrace api users remove {name}" if must_be_there else ""


def userid_in_passwd(name: str) -> int | None:
    """The userid that passwd has for a name, None if it has none."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def name_in_passwd(userid: int) -> str | None:
    """The name that passwd has for a userid, None if it has none."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return None


class Userids:
    """Cached results of `mismatch`. Each is looked up in a thread, at most once in LASTING seconds."""

    def __init__(self, must_be_there: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._must_be_there = must_be_there
        self._clock = clock
        # Each look-up with the time when it began. Only users of the store are looked up, so they are few.
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Future[str]]] = {}

    async def check(self, name: str, userid: int) -> None:
        """Check a user against passwd. Raises UseridMismatch."""
        key, now = (name, userid), self._clock()
        when, answer = self._asked.get(key, (0.0, None))
        if answer is None or (answer.done() and now - when >= LASTING):
            asked = asyncio.to_thread(mismatch, name, userid, self._must_be_there)
            answer = asyncio.ensure_future(asked)
            self._asked[key] = (now, answer)
        # A cancelled request does not cancel the look-up, because other requests may wait for it.
        found = await asyncio.shield(answer)
        if found:
            raise UseridMismatch(found)
