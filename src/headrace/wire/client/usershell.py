"""The default shell of a user, for `flux start`, `flux alloc` and `flux proxy`."""

from __future__ import annotations

import os
import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

_LAST = "/bin/sh"
# Login shells that only refuse logins. This user is logged in already, so they are not used.
_NO_SHELLS = ("nologin", "false")


def user_shell(env: Mapping[str, str]) -> str:
    """`SHELL` of `env`, or the user's login shell if it can be run, or /bin/sh."""
    named = env.get("SHELL")
    if named:
        return named
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        # In a container, the uid of this process may be unknown.
        return _LAST
    usable = os.path.basename(shell) not in _NO_SHELLS and os.access(shell, os.X_OK)
    return shell if usable else _LAST
