"""A sidecar: a container beside the one with the broker, whose command uses the broker's socket.

It mounts the pod's `mountPath`, which has the socket. Its command starts when the instance is ready to run jobs, unless
the file disables the wait. The container is an init container with `restartPolicy: Always`, so Kubernetes restarts it
whenever it ends, even after success. To run a successful command only once, the container then stays idle until the pod
ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time

from headrace.formats.spec.wait_status import exit_code
from headrace.wire.client.handle import Handle

from ...api import shell_text
from ...api.pod_plan import PodPlan, Sidecar
from ...api.shell_text import plain_words
from . import environment
from .place import Place, PlaceError, find_place, read_plan

# Seconds between two attempts to connect to the socket: no event reports that a broker listens.
_PERIOD = 0.1
# Connection errors before a broker has created its socket, and after a broker was lost.
_NOT_YET = (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)


def run_sidecar(index: str) -> int:
    """Run the command of container `index`; return its exit status (1, 126 or 127 if it cannot run)."""
    # The kernel drops signals for process 1 of a container if it has no handler for them.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        plan = read_plan()
        if index not in plan.sidecars:
            raise PlaceError(f"container {index} is not a sidecar; this pod has: {', '.join(plan.sidecars) or 'none'}")
        sidecar = plan.sidecars[index]
        place = find_place(plan, os.environ)
        environment.prepare(os.environ, plan, place)
        shell = environment.find_shell(os.environ)
        argv = command_of(plan, sidecar, shell)
        if sidecar.waits_for_socket and not plan.disable_socket:
            wait_for_instance(place)
        return _keep(argv, in_shell=bool(shell))
    except PlaceError as exc:
        print(f"headrace-pod: {exc}", file=sys.stderr)
        return 1
    except OSError as exc:
        print(f"headrace-pod: {exc.filename or index}: {exc.strerror}", file=sys.stderr)
        return 127 if isinstance(exc, FileNotFoundError) else 126


def _keep(argv: list[str], in_shell: bool) -> int:
    """Run a program as a child. After success, wait until this process receives a signal. Raises OSError.

    `in_shell`: the child is the shell of `command_of`, and the command is a child of the shell.
    """
    ended = False
    child = 0

    def end(number: int, _: object) -> None:
        nonlocal ended
        ended = True
        if child:
            _end(child, number, in_shell)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    defaults = [signal.SIGTERM, signal.SIGINT, signal.SIGPIPE]
    child = os.posix_spawnp(argv[0], argv, dict(os.environ), setsigdef=defaults)
    if ended:
        _end(child, signal.SIGTERM, in_shell)
    status = 0
    pid = 0
    while pid != child:
        # Orphans of the command become children of process 1.
        pid, status = os.wait()
    child = 0
    if status == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        if not ended:
            signal.sigwait((signal.SIGTERM, signal.SIGINT))
    return exit_code(status)


def _end(child: int, number: int, in_shell: bool) -> None:
    """Forward a signal to the command. A command that ignores the signal is killed.

    Otherwise it would delay the end of the pod until Kubernetes kills the container half a minute later.
    """
    commands = [child]
    if in_shell:
        # A shell handles the signal only after its current command has ended, so the command gets it, too.
        with contextlib.suppress(OSError), open(f"/proc/{child}/task/{child}/children", encoding="ascii") as file:
            commands += map(int, file.read().split())
    for pid in commands:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if _ignores(pid, number) else number)


def _ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, according to proc(5)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def command_of(plan: PodPlan, sidecar: Sidecar, shell: str) -> list[str]:
    """The container's program with its arguments.

    Raises PlaceError if it needs a shell and the image has none.
    """
    words = None if sidecar.before or sidecar.after else plain_words(sidecar.command)
    if words and not shell:
        return words
    if not shell:
        raise PlaceError(f"the image of container {sidecar.name} has no shell (bash or sh), which its commands need")
    text = shell_text.sidecar_text(
        sidecar.before, sidecar.command or ":", sidecar.after, strict=plan.strict, quiet=plan.quiet
    )
    return [shell, "-c", text]


def wait_for_instance(place: Place) -> None:
    """Wait until the broker of this pod is in state run; its socket exists before jobs are accepted.

    If the broker is lost in the meantime, wait for its successor.
    """
    while True:
        try:
            with Handle(f"local://{place.socket}") as handle:
                handle.rpc("state-machine.wait").get()
                return
        except OSError as exc:
            if exc.errno not in _NOT_YET:
                # The command will get the same error, and its status shows it.
                print(f"headrace-pod: not waiting for the instance: {exc.strerror}", file=sys.stderr)
                return
            time.sleep(_PERIOD)
