"""The initial program (rc2): the user's command, a script, or an interactive shell, run with the instance around it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import Broker


class Program:
    """One run of the initial program; `done(status, log text)` is called once with a shell's exit status."""

    def __init__(self, broker: Broker, command: list[str] | None, done: Callable[[int, str], None]) -> None:
        self._broker = broker
        self._done = done
        shell = broker.env.get("SHELL") or "/bin/sh"
        if not command:
            self.argv = [shell]
        elif len(command) == 1:
            self.argv = [shell, "-c", command[0]]
        else:
            self.argv = list(command)
        self.title = " ".join(command) if command else shell
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._begin = 0.0

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it. Raises OSError when it cannot be."""
        broker = self._broker
        env = dict(broker.env)
        for name in ("FLUX_PROXY_REMOTE", "PMI_FD", "PMI_RANK", "PMI_SIZE", "FLUX_KVS_NAMESPACE", "FLUX_JOB_ID"):
            env.pop(name, None)
        env["FLUX_URI"] = broker.attrs.get("local-uri")
        self._begin = time.monotonic()
        # At a terminal the program stays in our foreground process group; elsewhere it gets one that we can signal.
        interactive = sys.stdin is not None and os.isatty(0)
        self._process = subprocess.Popen(
            self.argv,
            env=env,
            restore_signals=True,
            **({} if interactive else _own_group()),
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        broker.loop.add_reader(self._pidfd, self._ended)

    def stop(self) -> None:
        """SIGHUP to the program's process group, SIGKILL after five seconds."""
        self._signal(signal.SIGHUP)
        self._broker.loop.call_later(5, self._signal, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        process = self._process
        if process is None:
            return
        try:
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        except ProcessLookupError:
            return

    def _ended(self) -> None:
        process = self._process
        if process is None or process.poll() is None:
            return
        self._broker.loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process = None
        took = time.monotonic() - self._begin
        code = process.returncode
        if code < 0:
            what, status = signal.strsignal(-code) or str(-code), 128 - code
        else:
            what, status = "Exited", code
        title = self.title if len(self.title) < 200 else shlex.quote(self.title[:200]) + "…"
        self._done(status, f"rc2.0: {title} {what} (rc={status}) {took:.1f}s")


def _own_group() -> dict[str, Any]:
    return {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
