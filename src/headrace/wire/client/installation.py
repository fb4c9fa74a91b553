"""The commands, bindings and folders of this installation, and the environment to find them.

An instance passes that environment to its programs. Only PATH and PYTHONPATH change. The folder in PYTHONPATH contains
only the package `flux`, so that a user's own Python finds the bindings without Headrace's dependencies. In a view,
PYTHONPATH is not changed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Tuple


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINDINGS = os.path.join(_PACKAGE, "wire", "compat", "python")
# The folders of this installation, by their names in `flux config builtin`.
FOLDERS = {
    "python_path": BINDINGS,
    "exec_path": os.path.join(_PACKAGE, "cli"),
    "connector_path": os.path.join(_PACKAGE, "wire", "client", "connectors"),
    "module_path": os.path.join(_PACKAGE, "engine", "modules"),
    "man_path": os.path.join(_PACKAGE, "man"),
}


def _scripts() -> str:
    # Imported here, since sysconfig would cost every broker a megabyte of memory.
    import sysconfig

    return sysconfig.get_path("scripts") or ""


# Functions that return a folder in which the commands may be, tried in order.
_CANDIDATES: Tuple[Callable[[], str], ...] = (
    lambda: os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv and sys.argv[0] else "",
    lambda: os.path.dirname(sys.executable or ""),
    _scripts,
    lambda: os.path.join(os.path.expanduser("~"), ".local", "bin"),
)


def is_in_view() -> bool:
    """True for the installation that a MiniCluster adds to a user's container (docs/dev/view.md).

    In a view, PYTHONPATH is not changed. The container's programs get the bindings only on request: by sourcing
    flux-view.sh, by `flux env` or by `flux python`.
    """
    return "_headrace_code" in sys.modules


def command_folder() -> str:
    """The folder with the `flux` and `headrace` commands of this installation; "" if there is none."""
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


# The folder of a system instance's configuration.
CONFDIR = "/etc/flux"


def builtin_values() -> Dict[str, str]:
    """The folders and files of this installation, by Flux's names."""
    return {
        **FOLDERS,
        "rc1_path": "",
        "rc3_path": "",
        "shell_path": "",
        "confdir": CONFDIR,
        "rundir": "/run/flux",
        "bindir": os.path.dirname(os.path.abspath(sys.argv[0])),
    }


def config_folders() -> List[str]:
    """The user's folder (XDG_CONFIG_HOME), then those of the site (XDG_CONFIG_DIRS), most important first."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [home, *(os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
