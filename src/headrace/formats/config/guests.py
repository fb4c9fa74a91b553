"""The table `[headrace.guests]`: what becomes of jobs whose user is not the owner of the instance.

`submit` is `refuse`; or `as-owner`: such jobs run, and their tasks are processes of the owner; or `as-user`: they are
processes of the job's user, which an owner that is root can start. `min-uid` is the lowest user id of `as-user`.
With `pam-service`, the processes of `as-user` have sessions of that service of PAM.
`mechanism` is the least that proves whose a job is: `none`, the kernel's word at a broker of the instance, or `munge`,
a signature of the jobspec. The table `limits` bounds what each guest's jobs use.
"""

from __future__ import annotations

import os
import stat
from typing import Any

KEY = "headrace.guests.submit"
MECHANISM_KEY = "headrace.guests.mechanism"
NONE, MUNGE = "none", "munge"
MECHANISMS = (NONE, MUNGE)
MIN_UID_KEY = "headrace.guests.min-uid"
REFUSE, AS_OWNER, AS_USER = "refuse", "as-owner", "as-user"
CHOICES = (REFUSE, AS_OWNER, AS_USER)
# The user ids of people begin here on most distributions (UID_MIN of login.defs(5)).
_MIN_UID = 1000
LIMITS_KEY = "headrace.guests.limits"
# The limits of each guest, or of each job of a guest, where the table [headrace.guests.limits] has no others.
# `output-bytes`: the default of Flux in instances of several users (flux-shell-options(7), output.limit).
LIMITS = {"active-jobs": 20_000, "active-bytes": 256 << 20, "output-bytes": 10 << 20}


def submit(config: dict[str, Any]) -> str:
    """The value of the key in a configuration that `keys` has checked."""
    return str(_table(config).get("submit", REFUSE))


def mechanism(config: dict[str, Any]) -> str:
    """The mechanism that guests' jobs must be signed with; `none` is any."""
    return str(_table(config).get("mechanism", NONE))


def pam_service(config: dict[str, Any]) -> str:
    """The service of PAM that opens sessions for jobs that run as their users; "" for none."""
    return str(_table(config).get("pam-service", ""))


def limit(config: dict[str, Any], name: str) -> int:
    """A limit of the table [headrace.guests.limits], or its default in `LIMITS`."""
    return int(_table(config).get("limits", {}).get(name, LIMITS[name]))


def below_least(config: dict[str, Any], userid: int) -> str:
    """Why no process can become user `userid`, by the keys alone; "" if it can, or need not."""
    least = int(_table(config).get("min-uid", _MIN_UID))
    if submit(config) != AS_USER or userid >= least:
        return ""
    return f"jobs run as their users here, and user {userid} is below {MIN_UID_KEY}, which is {least}"


def closed_folder(path: str) -> str:
    """What keeps users whose jobs run as themselves from passing the folder `path`, of which the last parts need not be
    there yet; "" if nothing does. A folder that its group may pass is taken to be open for them.
    """
    parts = os.path.realpath(path).split("/")
    for count in range(1, len(parts) + 1):
        folder = "/".join(parts[:count]) or "/"
        try:
            mode = os.stat(folder).st_mode & 0o7777
        except OSError:
            break
        if not mode & (stat.S_IXGRP | stat.S_IXOTH):
            return f"{folder} has mode {mode:04o}, and must be passable for all, such as with {mode | 0o011:04o}"
    return ""


def _table(config: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = config.get("headrace", {}).get("guests", {})
    return table
