"""The environment of commands: search paths, and the instance that `flux -p` and `flux -r` choose.

Each path list is made of `FLUX_..._PREPEND`, this installation's folder and the value that was inherited, in this order
and without repetitions (flux-environment(7)), so that a `flux` of another installation inside finds its own parts first
and ours behind them.
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


# variable: (variable whose folders go to the front, name of our folder)
_LISTS = {
    "PYTHONPATH": ("FLUX_PYTHONPATH_PREPEND", "python_path"),
    "FLUX_EXEC_PATH": ("FLUX_EXEC_PATH_PREPEND", "exec_path"),
    "FLUX_CONNECTOR_PATH": ("FLUX_CONNECTOR_PATH_PREPEND", "connector_path"),
    "FLUX_MODULE_PATH": ("FLUX_MODULE_PATH_PREPEND", "module_path"),
}
# Lists of users and sites, which hold no folder of ours.
_GIVEN = ("FLUX_RC_EXTRA", "FLUX_SHELL_RC_PATH")
# The variables that `flux env` prints, as far as they are set.
NAMES = ("PATH", *_LISTS, "MANPATH", *_GIVEN, "FLUX_URI")


# Commands that are asked for the bindings: a view gives them to no other program.
_ASKING = ("env", "python")


def prepare(environ: MutableMapping[str, str], command: str = "") -> None:
    """Change `environ`, that of this process, so that what `command` starts finds this installation first."""
    bindings_unasked = is_in_view() and command not in _ASKING
    if sys.argv and os.path.basename(sys.argv[0]) in ("flux", "headrace"):
        here = os.path.dirname(os.path.abspath(sys.argv[0]))
        environ["PATH"] = _joined([here, *environ.get("PATH", "").split(":")])
    for name, (front, folder) in _LISTS.items():
        ours = [] if bindings_unasked and name == "PYTHONPATH" else [FOLDERS[folder]]
        parts = [*environ.get(front, "").split(":"), *ours, *environ.get(name, "").split(":")]
        if any(parts):
            environ[name] = _joined(parts)
    # man(1) takes an empty entry, such as one behind a colon at the end, for the system's own pages.
    inherited = environ.get("MANPATH") or ":"
    pages = _joined([FOLDERS["man_path"], *inherited.split(":")])
    environ["MANPATH"] = pages + (":" if inherited[-1] == ":" else "")
    for name in _GIVEN:
        if environ.get(name):
            environ[name] = _joined(environ[name].split(":"))


def show() -> None:
    """Print the variables that commands get, `NAME=VALUE` each."""
    sys.stdout.write("".join(f"{name}={os.environ[name]}\n" for name in NAMES if name in os.environ))
    sys.stdout.flush()


def _joined(parts: List[str]) -> str:
    """A path list of the parts that are not empty, each at its first place."""
    return ":".join([part for part in dict.fromkeys(parts) if part])


def retarget(hops: str) -> None:
    """Point FLUX_URI at the parent ("p", one hop a letter) or at the root instance ("r")."""
    from headrace.wire.client.handle import Handle

    while hops:
        handle = Handle()
        try:
            parent = handle.attr_get("parent-uri")
            # This instance is a job of its parent: the KVS namespace that this job has there.
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
