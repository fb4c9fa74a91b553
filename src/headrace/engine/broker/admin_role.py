"""`[access.roles.admin]`: the guests whose messages carry the role ADMIN (RFC 12), by user name or group.

A service may let them do more than other guests: ours show them all jobs in `private-mode`.
"""

from __future__ import annotations

import os
from typing import Any


def is_admin(access: dict[str, Any], uid: int) -> bool:
    """Whether the table `[access]` gives user `uid` the role."""
    admin = access.get("roles", {}).get("admin", {})
    users, groups = admin.get("users", ()), admin.get("groups", ())
    if not users and not groups:
        return False
    # Imported here, as few instances assign the role by name.
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    if user.pw_name in users:
        return True
    return bool(groups) and any(_name(grp, gid) in groups for gid in os.getgrouplist(user.pw_name, user.pw_gid))


def _name(grp: Any, gid: int) -> str:
    try:
        name: str = grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
    return name
