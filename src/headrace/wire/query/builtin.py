"""The paths of this installation, by the names of `flux config builtin`; the bindings give them, too."""

from __future__ import annotations

import os
import sys

from headrace.wire.client.installation import FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

# Where a system instance's configuration is kept.
CONFDIR = "/etc/flux"


def builtin_values() -> Dict[str, str]:
    """Where this installation keeps what, by the names that Flux uses."""
    return {
        **FOLDERS,
        "rc1_path": "",
        "rc3_path": "",
        "shell_path": "",
        "confdir": CONFDIR,
        "rundir": "/run/flux",
        "bindir": os.path.dirname(os.path.abspath(sys.argv[0])),
    }
