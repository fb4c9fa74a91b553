"""A command at a terminal of its own: what is typed, what it prints, and the wait for its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator

from instance import clean_env

from waiting import PATIENCE

# Escape sequences that change colors and styles, and the character set.
_STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\(B")


class Terminal:
    """`argv`, the leader of a session that our end of a pseudo terminal controls."""

    def __init__(self, argv: list[str], **env: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(argv[0], argv, clean_env(**env))
            finally:
                os._exit(127)
        self.text = ""
        self._status: int | None = None

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def expect(self, wanted: str) -> str:
        """Wait until `wanted` was printed after what was expected before; returns what preceded it."""
        deadline = time.monotonic() + PATIENCE
        while wanted not in self.text:
            assert self._read(deadline), f"{wanted!r} never came, but {self.text!r}"
        before, _, self.text = self.text.partition(wanted)
        return before

    def redrawn(self, *wanted: str) -> str:
        """Have the program draw its whole screen (Ctrl-L) until that has all that is wanted.

        Returns what it drew, without colors, but with the escape sequences that place the cursor.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            self.text = ""
            self.type("\f")
            while self._read(time.monotonic() + 0.1):
                pass
            drawn = _STYLES.sub("", self.text)
            if all(text in drawn for text in wanted):
                return drawn
            assert time.monotonic() < deadline, f"{wanted} are not all shown, but {drawn!r}"

    def wait(self) -> int:
        """The exit code; 128 + N for signal N."""
        deadline = time.monotonic() + PATIENCE
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif not self._read(min(deadline, time.monotonic() + 0.05)):
                assert time.monotonic() < deadline, f"it never ended; printed last: {self.text!r}"
        return self._status if self._status >= 0 else 128 - self._status

    def _read(self, deadline: float) -> bool:
        if not select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            # EIO: nobody has the terminal open any more.
            time.sleep(0.01)
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def close(self) -> None:
        """Hang up."""
        os.close(self.fd)
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def terminal(*argv: str, **env: str) -> Iterator[Terminal]:
    made = Terminal(list(argv), **env)
    try:
        yield made
    finally:
        made.close()
