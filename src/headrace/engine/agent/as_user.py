"""The shell of one job of a guest, in a process of that user: the agent's code, for this job alone.

It is a new program and not a fork, so it has nothing of the agent's memory. `guests` starts it as root, and is at the
other end of its socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from headrace.engine.process import linux, pam_session, user

from .guests import SOCKET
from .protocol import frame
from .start import prepare, run_agent


def main(uid: int, job: str, pam_service: str) -> int:
    """Become user `uid` and run the job of the start operation.

    `job` is the job's id as users see it. With `pam_service`, a session of that PAM service is opened first.
    """
    linux.name_process("flux-shell", f"flux-shell: job {job} of user {uid}")
    sock = socket.socket(fileno=SOCKET)
    # Modules are imported while this process belongs to root, since the user may not be allowed to read their files.
    prepare()
    try:
        whose = user.look_up(uid)
        if pam_service:
            pam_session.open_session(whose.name, pam_service)
        _close_other_descriptors()
        user.become(whose)
    except user.UserError as exc:
        sock.sendall(frame([{"op": "refused", "note": str(exc)}]))
        return 1
    run_agent(sock, whose)
    return 0


def _close_other_descriptors() -> None:
    """Close all descriptors except the socket.

    A user can copy descriptors from his processes (pidfd_getfd(2)), and the broker was started with a log or a
    terminal, and maybe with other files of root.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of this listing is already closed.
        with contextlib.suppress(OSError):
            if int(name) > SOCKET:
                os.close(int(name))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
