"""The table `[headrace.guests]`: jobs of guests, users who are not the owner of the instance.

- `submit`: `refuse` rejects guests' jobs. `as-owner` runs their tasks as processes of the owner. `as-user` runs them as
  processes of the job's user, which only root can start, so the owner must be root.
- `min-uid`: the lowest user id that `as-user` allows.
- `pam-service`: with `as-user`, the PAM service that opens a session for the job's processes.
- `mechanism`: the least proof of a job's user that is accepted. `none` is the user id that the kernel reports for the
  connection to a broker of the instance, `munge` a signature of the jobspec.
- `limits`: limits on the resources that each guest's jobs use.
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
# The first user id of ordinary users on most distributions (UID_MIN of login.defs(5)).
_MIN_UID = 1000
LIMITS_KEY = "headrace.guests.limits"
# Defaults of the table [headrace.guests.limits]: limits of each guest, or of each job of a guest.
# `output-bytes` is Flux's default in multi-user instances (flux-shell-options(7), output.limit).
LIMITS = {"active-jobs": 20_000, "active-bytes": 256 << 20, "output-bytes": 10 << 20}


def submit(config: dict[str, Any]) -> str:
    """The value of `submit` in a configuration that `keys` has checked."""
    return str(_table(config).get("submit", REFUSE))


def mechanism(config: dict[str, Any]) -> str:
    """The mechanism that guests' jobs must be signed with; `none` accepts any."""
    return str(_table(config).get("mechanism", NONE))


def pam_service(config: dict[str, Any]) -> str:
    """The PAM service that opens sessions for jobs that run as their users; "" for none."""
    return str(_table(config).get("pam-service", ""))


def limit(config: dict[str, Any], name: str) -> int:
    """A limit of the table [headrace.guests.limits], or its default in `LIMITS`."""
    return int(_table(config).get("limits", {}).get(name, LIMITS[name]))


def below_least(config: dict[str, Any], userid: int) -> str:
    """The error if `min-uid` keeps jobs of user `userid` from running as that user, otherwise ""."""
    least = int(_table(config).get("min-uid", _MIN_UID))
    if submit(config) != AS_USER or userid >= least:
        return ""
    return f"jobs run as their users here, and user {userid} is below {MIN_UID_KEY}, which is {least}"


def closed_folder(path: str) -> str:
    """The error if guests cannot search the folder `path` or one of its parents, otherwise "".

    With `as-user`, jobs need that permission. The last parts of the path need not exist yet. Search permission of the
    group is taken to suffice.
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
