"""Whether users of the store still have the userids that passwd has for their names.

The store keeps a userid for good, and passwd may change: a user gets another id, an id that was freed is given to a
newcomer, a name comes into passwd. Jobs would then run as another user of the machine, so such a user is refused.
"""

from __future__ import annotations

import asyncio
import pwd
import time
from collections.abc import Callable

# Seconds that an answer of passwd holds for: requests of a user come often, and a name service may be far away.
LASTING = 5.0


class UseridMismatch(PermissionError):
    """The userid of a user is not the one of passwd; the text is for users and administrators."""


def mismatch(name: str, userid: int, must_be_there: bool = False) -> str:
    """What is wrong with a user of the store by passwd, and how an administrator mends it; "" if nothing is. A name
    and userid that passwd has not are right, unless the user `must_be_there`.
    """
    mend = f"headrace api users renumber {name}, or users remove {name}"
    there = _userid(name)
    if there == userid:
        return ""
    if there is not None:
        return f"the userid of '{name}' is {userid} in this service and {there} in passwd: {mend}"
    other = name_in_passwd(userid)
    if other is not None:
        return f"the userid of '{name}' in this service, {userid}, is that of '{other}' in passwd: {mend}"
    return f"'{name}' has no entry in passwd: headrace api users remove {name}" if must_be_there else ""


def _userid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def name_in_passwd(userid: int) -> str | None:
    """The name that passwd has for a userid, None for none."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return None


class Userids:
    """Answers of `mismatch`, each asked for in a thread once within LASTING seconds, however many requests wait."""

    def __init__(self, must_be_there: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._must_be_there = must_be_there
        self._clock = clock
        # When each was asked for. Users of the store alone come here, so they are not many.
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Future[str]]] = {}

    async def check(self, name: str, userid: int) -> None:
        """Raises UseridMismatch."""
        key, now = (name, userid), self._clock()
        when, answer = self._asked.get(key, (0.0, None))
        if answer is None or (answer.done() and now - when >= LASTING):
            asked = asyncio.to_thread(mismatch, name, userid, self._must_be_there)
            answer = asyncio.ensure_future(asked)
            self._asked[key] = (now, answer)
        # A request that is given up does not end the look-up, for which others wait.
        found = await asyncio.shield(answer)
        if found:
            raise UseridMismatch(found)
