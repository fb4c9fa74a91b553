"""The environment of commands: search paths, and the instance that `flux -p` and `flux -r` choose.

Each path list consists of `FLUX_..._PREPEND`, this installation's folder and the inherited value, in this order and
without duplicates (flux-environment(7)). If a command runs the `flux` of another installation, that `flux` puts its own
folders before ours.
"""

from __future__ import annotations

import errno
import os
import sys

from headrace.wire.client.installation import FOLDERS, is_in_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, MutableMapping

    from headrace.wire.client.handle import Handle


# variable: (variable with folders to put first, name of this installation's folder)
_LISTS = {
    "PYTHONPATH": ("FLUX_PYTHONPATH_PREPEND", "python_path"),
    "FLUX_EXEC_PATH": ("FLUX_EXEC_PATH_PREPEND", "exec_path"),
    "FLUX_CONNECTOR_PATH": ("FLUX_CONNECTOR_PATH_PREPEND", "connector_path"),
    "FLUX_MODULE_PATH": ("FLUX_MODULE_PATH_PREPEND", "module_path"),
}
# Path lists of users and sites; no folder of this installation is added.
_GIVEN = ("FLUX_RC_EXTRA", "FLUX_SHELL_RC_PATH")
# The variables that `flux env` prints if they are set.
NAMES = ("PATH", *_LISTS, "MANPATH", *_GIVEN, "FLUX_URI")


# Commands that users run to get the Python bindings. In a view, no other command adds them to PYTHONPATH.
_ASKING = ("env", "python")


def prepare(environ: MutableMapping[str, str], command: str = "") -> None:
    """Change this process's `environ`, so that programs that `command` runs find this installation first."""
    bindings_unasked = is_in_view() and command not in _ASKING
    if sys.argv and os.path.basename(sys.argv[0]) in ("flux", "headrace"):
        here = os.path.dirname(os.path.abspath(sys.argv[0]))
        environ["PATH"] = _joined([here, *environ.get("PATH", "").split(":")])
    for name, (front, folder) in _LISTS.items():
        ours = [] if bindings_unasked and name == "PYTHONPATH" else [FOLDERS[folder]]
        parts = [*environ.get(front, "").split(":"), *ours, *environ.get(name, "").split(":")]
        if any(parts):
            environ[name] = _joined(parts)
    # An empty entry, such as after a trailing colon, stands for the system's own pages (man(1)).
    inherited = environ.get("MANPATH") or ":"
    pages = _joined([FOLDERS["man_path"], *inherited.split(":")])
    environ["MANPATH"] = pages + (":" if inherited[-1] == ":" else "")
    for name in _GIVEN:
        if environ.get(name):
            environ[name] = _joined(environ[name].split(":"))


def show() -> None:
    """Print the variables that commands get, one `NAME=VALUE` per line."""
    sys.stdout.write("".join(f"{name}={os.environ[name]}\n" for name in NAMES if name in os.environ))
    sys.stdout.flush()


def _joined(parts: List[str]) -> str:
    """A path list of the non-empty parts without duplicates; each keeps its first position."""
    return ":".join([part for part in dict.fromkeys(parts) if part])


def retarget(hops: str) -> None:
    """Point FLUX_URI at the parent instance ("p", one hop per letter) or at the root instance ("r")."""
    from headrace.wire.client.handle import Handle

    while hops:
        handle = Handle()
        try:
            parent = handle.attr_get("parent-uri")
            # This instance is a job of its parent. The job has this namespace in the parent's KVS.
            namespace = _optional(handle, "parent-kvs-namespace")
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return
        finally:
            handle.close()
        os.environ["FLUX_URI"] = parent
        os.environ.pop("FLUX_KVS_NAMESPACE", None)
        if namespace:
            os.environ["FLUX_KVS_NAMESPACE"] = namespace
        if hops != "r":
            hops = hops[1:]


def _optional(handle: Handle, name: str) -> str:
    try:
        return handle.attr_get(name)
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        return ""
