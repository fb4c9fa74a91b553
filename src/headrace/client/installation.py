"""Where this installation's commands and bindings are, and the environment in which `flux` and `import flux` are ours.

An instance gives that environment to its programs. Only PATH and PYTHONPATH change. PYTHONPATH gets a folder that holds
nothing but the package `flux`, so that a user's own Python finds our bindings and none of our dependencies; not in a
view, which leaves PYTHONPATH alone.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Callable, Dict, Mapping, Tuple

BINDINGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compat", "python")


# Looked at in turn: the scripts folder costs a megabyte of configuration, which every broker would keep.
_CANDIDATES: Tuple[Callable[[], str], ...] = (
    lambda: os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv and sys.argv[0] else "",
    lambda: os.path.dirname(sys.executable or ""),
    lambda: sysconfig.get_path("scripts") or "",
    lambda: os.path.join(os.path.expanduser("~"), ".local", "bin"),
)


def is_in_view() -> bool:
    """Whether this is the installation that a MiniCluster brings into a user's container (docs/dev/view.md).

    There PYTHONPATH is left as it is: the container's programs get our bindings only when they ask, by sourcing
    flux-view.sh, by `flux env` or by `flux python`.
    """
    return "_headrace_code" in sys.modules


def command_folder() -> str:
    """The folder with our `flux` and `headrace` commands, "" when none can be found."""
    for candidate in _CANDIDATES:
        folder = candidate()
        if folder and all(os.access(os.path.join(folder, name), os.X_OK) for name in ("flux", "headrace")):
            return folder
    return ""


def _prepend(path: str, folder: str) -> str:
    parts = [part for part in path.split(os.pathsep) if part and part != folder]
    return os.pathsep.join([folder, *parts])


def with_flux(env: Mapping[str, str]) -> Dict[str, str]:
    """A copy of `env` in which `flux`, `headrace` and `import flux` resolve to this installation."""
    out = dict(env)
    folder = command_folder()
    if folder:
        out["PATH"] = _prepend(out.get("PATH", "/usr/local/bin:/usr/bin:/bin"), folder)
    if not is_in_view():
        out["PYTHONPATH"] = _prepend(out.get("PYTHONPATH", ""), BINDINGS)
    return out
