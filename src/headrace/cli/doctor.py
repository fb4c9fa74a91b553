"""`headrace doctor`: checks this machine and the current instance for problems.

Each check prints one line: ok, note or problem, with what to do. The exit status is 1 if there is a problem.
"""

from __future__ import annotations

import os
import sys

from headrace.cli.common.getopts import Command
from headrace.formats.spec import jobid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Tuple

    # (level, what was found)
    Finding = Tuple[str, str]

PREFIX = "headrace-doctor: "

_COMMAND = Command("headrace doctor", "", "Check this machine and the current instance for problems")
_LONGEST_TMPDIR = 76  # bytes; the path of a socket in a run directory there may have at most 108
_OK, _NOTE, _PROBLEM = "ok", "note", "problem"


def main(argv: List[str]) -> int:
    _COMMAND.parse(argv).need(0, 0)
    status = 0
    for name, check in _CHECKS:
        for level, text in check():
            print(f"{level:<8} {name:<12} {text}")
            status = max(status, int(level == _PROBLEM))
    return status


def _platform() -> List[Finding]:
    if not sys.platform.startswith("linux"):
        return [(_PROBLEM, f"this is {sys.platform}: brokers run on Linux only")]
    return [(_OK, f"Linux {os.uname().release}, {os.uname().machine}")]


def _python() -> List[Finding]:
    shown = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 10):
        return [(_PROBLEM, f"Python {shown}: brokers need 3.10 or later (commands and `import flux` run on 3.8)")]
    return [(_OK, f"Python {shown}")]


def _libraries() -> List[Finding]:
    found = []
    for name in ("zmq", "msgspec", "yaml"):
        try:
            __import__(name)
        except ImportError as exc:
            found.append((_PROBLEM, f"{name} cannot be imported: {exc}; install headrace again with pip"))
    return found or [(_OK, "zmq, msgspec and yaml can be imported")]


def _run_folder() -> List[Finding]:
    folder = os.environ.get("TMPDIR") or "/tmp"
    found: List[Finding] = []
    if len(os.fsencode(folder)) > _LONGEST_TMPDIR:
        found = [(_NOTE, f"TMPDIR={folder} is too long for sockets in it: run directories go to /tmp")]
        folder = "/tmp"
    if not os.access(folder, os.W_OK):
        return [(_PROBLEM, f"{folder} is not writable: set TMPDIR to a folder that is")]
    return found or [(_OK, f"run directories go to {folder}")]


def _cores() -> List[Finding]:
    allowed = len(os.sched_getaffinity(0))
    present = os.cpu_count() or allowed
    text = f"{allowed} of {present} CPUs may be used"
    return [(_OK if allowed == present else _NOTE, text)]


def _open_files() -> List[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        return [(_PROBLEM, f"only {soft} open files are allowed (ulimit -n; hard limit {hard}): 1024 are needed")]
    return [(_OK, "open files: " + ("unlimited" if soft == resource.RLIM_INFINITY else str(soft)))]


def _locale() -> List[Finding]:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        return [(_NOTE, f"the locale's encoding is {encoding}: job ids are shown like fA1, symbols as ASCII or ?")]
    shown = jobid.encode(173)
    if shown[0] == "f":
        return [(_NOTE, f"job ids are shown like {shown}: the locale is not UTF-8, or FLUX_F58_FORCE_ASCII is set")]
    return [(_OK, f"the locale shows job ids such as {shown}")]


def _commands() -> List[Finding]:
    import shutil

    found = shutil.which("flux")
    ours = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "flux")
    if found is None:
        return [(_NOTE, '`flux` is not in PATH: eval "$(headrace env)" adds it')]
    if os.path.exists(ours) and not os.path.samefile(found, ours):
        return [(_NOTE, f"`flux` in PATH is {found}, not Headrace's {ours}; in a Headrace instance it is Headrace's")]
    return [(_OK, f"`flux` is {found}")]


def _instance() -> List[Finding]:
    uri = os.environ.get("FLUX_URI")
    if not uri:
        return [(_NOTE, "not in an instance (FLUX_URI is not set)")]
    from headrace.wire.client.handle import Handle

    try:
        handle = Handle()
        state = handle.rpc("state-machine.get").get(5.0)["state"]
    except OSError as exc:
        return [(_PROBLEM, f"{uri}: {exc.strerror}")]
    found: List[Finding] = [(_OK if state == "run" else _NOTE, f"{uri} is in state {state}")]
    health = handle.rpc("overlay.health", nodeid=0).get(5.0)
    if health["status"] != "full":
        found.append((_PROBLEM, f"the tree is {health['status']}: flux overlay status shows which brokers are gone"))
    return found


_CHECKS: List[Tuple[str, Callable[[], List[Finding]]]] = [
    ("platform", _platform),
    ("python", _python),
    ("libraries", _libraries),
    ("folders", _run_folder),
    ("cpus", _cores),
    ("files", _open_files),
    ("locale", _locale),
    ("commands", _commands),
    ("instance", _instance),
]
