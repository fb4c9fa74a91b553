"""Which shell a user gets where none is named: `flux start`, `flux alloc` and `flux proxy` must agree on it."""

from __future__ import annotations

import os
import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

_LAST = "/bin/sh"
# Shells of accounts that nobody shall log in to; who is here already has.
_NO_SHELLS = ("nologin", "false")


def user_shell(env: Mapping[str, str]) -> str:
    """`SHELL` of `env`, else the login shell of our user where there is one that runs, else /bin/sh."""
    named = env.get("SHELL")
    if named:
        return named
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        # A container may run us under a uid that no one has.
        return _LAST
    usable = os.path.basename(shell) not in _NO_SHELLS and os.access(shell, os.X_OK)
    return shell if usable else _LAST
