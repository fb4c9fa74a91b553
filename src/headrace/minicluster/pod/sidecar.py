"""A sidecar: a container beside the brokers whose command is to find the instance's socket.

It has the pod's `mountPath`, and so the socket, as a volume. Its command runs when the socket answers, unless the file
asks not to wait; its status is the container's.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from .. import shell_text
from ..pod_plan import PodPlan, Sidecar
from . import environment
from .place import Place, PlaceError, find_place, read_plan
from .words import plain_words

# Seconds between two looks for the socket: no event tells one container what happens in another.
_LOOK = 0.1


def run_sidecar(index: str) -> int:
    """Be container `index` of this pod: become its command, or the exit status of what cannot be run."""
    try:
        plan = read_plan()
        if index not in plan.sidecars:
            raise PlaceError(f"container {index} of this pod is no sidecar: {', '.join(plan.sidecars) or 'none is'}")
        sidecar = plan.sidecars[index]
        place = find_place(plan, os.environ)
        environment.prepare(os.environ, plan, place)
        argv = command_of(plan, sidecar, environment.find_shell(os.environ))
        if sidecar.waits_for_socket and not plan.disable_socket:
            wait_for_socket(place)
        os.execvpe(argv[0], argv, dict(os.environ))
    except PlaceError as exc:
        print(f"headrace-pod: {exc}", file=sys.stderr)
        return 1
    except OSError as exc:
        print(f"headrace-pod: {exc.filename or index}: {exc.strerror}", file=sys.stderr)
        return 127 if isinstance(exc, FileNotFoundError) else 126


def command_of(plan: PodPlan, sidecar: Sidecar, shell: str) -> list[str]:
    """The program that the container becomes, with its arguments. Raises PlaceError where it needs a shell."""
    words = None if sidecar.before or sidecar.after else plain_words(sidecar.command)
    if words and not shell:
        return words
    if not shell:
        raise PlaceError(f"the image of container {sidecar.name} has no shell (bash or sh), which its commands need")
    text = shell_text.outer_text(
        sidecar.before, sidecar.command or ":", sidecar.after, strict=plan.strict, quiet=plan.quiet
    )
    return [shell, "-c", text]


def wait_for_socket(place: Place) -> None:
    """Return when the broker of this pod accepts at its socket."""
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(place.socket)
            except OSError:
                time.sleep(_LOOK)
            else:
                return
