"""Completes the environment for a broker and its jobs: some images have no HOME, /tmp or shell."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, MutableMapping

from headrace.engine.broker.boot.address import AddressError, address_of
from headrace.wire.client.installation import BINDINGS

from ...api import pod_plan
from ...api.pod_plan import PodPlan
from ...api.shell_text import Mode
from . import files
from .place import Place

# The variable with a pod's host name for Flux, if the pod uses the node's network.
FAKE_HOSTNAME = "FLUX_FAKE_HOSTNAME"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def prepare(env: MutableMapping[str, str], plan: PodPlan, place: Place) -> None:
    """Complete `env` for the broker and its jobs. Variables of the image or the user are not changed."""
    env.update(plan.environment)
    env["FLUX_OUTPUT_DIR"] = plan.output_dir
    env["HEADRACE_MINI_DIR"] = f"{place.config}/run/headrace"
    env["fluxsocket"] = f"local://{place.socket}"
    env["PATH"] = _with(env.get("PATH") or _PATH, os.path.dirname(own_command()[0]))
    if plan.python_path:
        env["PYTHONPATH"] = _with(env.get("PYTHONPATH", ""), plan.python_path)
    if Mode(plan.mode) is Mode.LAUNCHER:
        # Many launchers use `import flux` to submit. Other commands do not get the bindings' PYTHONPATH.
        env["PYTHONPATH"] = _with(env.get("PYTHONPATH", ""), BINDINGS)
    if env.get("HOME", "/") == "/" and os.access(files.HOME, os.W_OK | os.X_OK):
        env["HOME"] = files.HOME
        env.setdefault("USER", "flux-operator")
    if "TMPDIR" not in env and not os.access("/tmp", os.W_OK | os.X_OK):
        env["TMPDIR"] = f"{place.config}/run/headrace"
    if place.host != socket.gethostname().split(".")[0]:
        # A pod that uses the node's network has the node's host name.
        env[FAKE_HOSTNAME] = place.host
    # Create the default folder for jobs' output, which most images lack.
    try:
        os.makedirs(plan.output_dir, exist_ok=True)
    except OSError:
        env["FLUX_OUTPUT_DIR"] = f"{place.mount}/fluxout"
        os.makedirs(env["FLUX_OUTPUT_DIR"], exist_ok=True)


def _with(path: str, folder: str) -> str:
    # The folder is last, so that a user's own modules take precedence.
    return ":".join([*(part for part in path.split(":") if part and part != folder), folder])


def find_shell(env: Mapping[str, str]) -> str:
    """The path of bash, for which files are written, or of sh; "" if the image has neither."""
    path = env.get("PATH") or _PATH
    return shutil.which("bash", path=path) or shutil.which("sh", path=f"{path}:{_PATH}") or ""


def own_command() -> list[str]:
    """The command that runs this program again."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) == "headrace-pod":
        return [program]
    return [f"{pod_plan.VIEW}/bin/headrace-pod"]


def own_address(host: str) -> str:
    """The address by which other pods reach this one."""
    try:
        found = address_of(host)
    except AddressError:
        found = ""
    if found and not found.startswith("127."):
        return found
    # In a pod without IPv4, look up the pod's own name in /etc/hosts.
    try:
        for *_, where in socket.getaddrinfo(host.encode(), None, socket.AF_INET6, socket.SOCK_STREAM):
            if where[0] != "::1":
                return str(where[0])
    except OSError:
        pass
    return found or "127.0.0.1"


def elapsed(seconds: float) -> str:
    """A duration in the format %E of time(1): [hours:]minutes:seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:02.0f}" if hours else f"{minutes}:{rest:05.2f}"
