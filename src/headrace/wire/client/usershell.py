"""The default shell of a user, the same for `flux start`, `flux alloc` and `flux proxy`."""

from __future__ import annotations

import os
import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

_LAST = "/bin/sh"
# Shells that refuse a log-in; this user has logged in already.
_NO_SHELLS = ("nologin", "false")


def user_shell(env: Mapping[str, str]) -> str:
    """`SHELL` of `env`, or the user's login shell if it can be run, or /bin/sh."""
    named = env.get("SHELL")
    if named:
        return named
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        # A container may run this process under an unknown uid.
        return _LAST
    usable = os.path.basename(shell) not in _NO_SHELLS and os.access(shell, os.X_OK)
    return shell if usable else _LAST
