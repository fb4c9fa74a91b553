"""A task's terminal: captured into the job's output, or handed to a client that attached to it (`flux alloc`).

The client speaks the shell's `pty` method, a stream: `attach` with its window size, then `write` and `resize`; what the
task prints comes back as `data`, its end as `exit`. What nobody has seen yet is not lost: until the first client comes
the task waits once it has printed as much as is kept here, and a task that has ended keeps its job.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import signal
import struct
import termios
from typing import TYPE_CHECKING, Any

from ..agent.feed import Feed
from . import options as known

if TYPE_CHECKING:
    from .job import ShellJob
    from .task import Task

_READ = 1 << 16
# Bytes that the terminal has not taken yet, above which who types waits for an answer.
_TYPED = 1 << 20
# What by itself ends no process, or as a rule is a word to one that goes on: the first client is still waited for.
_NO_END = {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGURG,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
}


class Pty:
    """Both ends of a pseudo terminal; `slave` belongs to the starting process until it runs."""

    def __init__(self, job: ShellJob, task: Task) -> None:
        self._job = job
        self._task = task
        self.master, self.slave = os.openpty()
        os.set_inheritable(self.master, False)
        option = job.options.get("pty")
        self._interactive = job.lead and task.rank == 0 and known.interactive_pty(job.options)
        self._capture = not self._interactive or bool(isinstance(option, dict) and option.get("capture"))
        # Whether the first client is still to come, without whom the job does not end.
        self.awaited = self._interactive
        self._clients: dict[str, int] = {}
        # What the task printed while nobody was attached: all of it, or the last if it does not wait.
        self._held = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._feed: Feed | None = None
        self._typed: list[int] = []
        self._line_start = True
        # Why nothing is read: the first client is late, or the lead shell is behind.
        self._full = self._behind = False
        self._reading = False
        self._status: int | None = None

    def start(self) -> None:
        if self._job.output is not None:
            # A terminal is one stream: nothing will come on the other.
            self._job.output.eof(self._task.rank, "stderr")
        os.set_blocking(self.master, False)
        self._feed = Feed(self._job.agent, os.dup(self.master), self._taken)
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        wanted = self.master >= 0 and not self._full and not self._behind
        if wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._job.agent.watch(self.master, self._readable)
        else:
            self._job.agent.unwatch(self.master)

    def hold(self, on: bool) -> None:
        """Read no output, or read it again; the process waits when the terminal is full."""
        self._behind = on
        self._read_or_wait()

    def _readable(self) -> None:
        waits = self.awaited and not self._capture
        try:
            data = os.read(self.master, _READ - len(self._held) if waits else _READ)
        except BlockingIOError:
            return
        except OSError:
            # EIO: the last process closed the terminal.
            data = b""
        if not data:
            self.end()
            return
        if self._clients:
            # A character may come in two parts: a terminal is read in pieces of 4 KiB.
            self._show(self._decoder.decode(data))
        elif self._interactive:
            self._held += data
            del self._held[:-_READ]
            self._full = waits and len(self._held) == _READ
            self._read_or_wait()
        if self._capture and self._job.output is not None:
            self._job.output.data(self._task.rank, "stdout", data)

    def _show(self, text: str) -> None:
        for token in self._clients.values() if text else ():
            self._job.reply(token, {"type": "data", "data": text})

    def end(self) -> None:
        """The terminal's last output was read."""
        if self.master < 0:
            return
        output = self._job.output
        self.close()
        if output is not None:
            output.eof(self._task.rank, "stdout")
        self._say_exit()
        self._task.stream_ended()

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        if self.master >= 0:
            if self._reading:
                self._job.agent.unwatch(self.master)
                self._reading = False
            os.close(self.master)
            self.master = -1

    def process_ended(self, status: int) -> None:
        """The leader of the terminal's session is gone; what it printed last may be unread."""
        self._status = status
        self._say_exit()

    def _say_exit(self) -> None:
        if self._status is None or self.master >= 0:
            return
        self._show(self._decoder.decode(b"", final=True))
        for token in self._clients.values():
            self._job.reply(token, {"type": "exit", "status": self._status, "message": "session exiting"})
            self._job.reply(token, None, errno.ENODATA)
        self._clients.clear()

    def signalled(self, signum: int) -> None:
        """The job got a signal: if that ends it, nobody is waited for any more."""
        if signum not in _NO_END:
            self._await_nobody()

    def _await_nobody(self) -> None:
        if self.awaited:
            self.awaited = self._full = False
            self._read_or_wait()
            self._task.maybe_close()

    def request(self, op: dict[str, Any]) -> None:
        """A client's request: attach, write, resize or detach. Raises KeyError, TypeError, ValueError."""
        payload, token, sender = op["payload"], op["token"], op.get("sender", "")
        kind = payload["type"]
        if kind == "attach":
            self._resize(payload)
            self._clients[sender] = token
            self._job.reply(token, {"type": "attach"})
            held, self._held = self._decoder.decode(self._held), bytearray()
            if held:
                self._job.reply(token, {"type": "data", "data": held})
            self._say_exit()
            self._await_nobody()
            return
        if kind in ("data", "write"):
            self.type(payload["data"].encode("utf-8", "surrogateescape"))
        elif kind == "resize":
            self._resize(payload)
        elif kind == "detach":
            attached = self._clients.get(sender)
            self.disconnect(sender)
            if attached is not None:
                self._job.reply(attached, None, errno.ENODATA)
        if op.get("noresponse"):
            return
        if kind in ("data", "write") and self._feed is not None and self._feed.backlog > _TYPED:
            self._typed.append(token)
        else:
            self._job.reply(token)

    def type(self, data: bytes) -> None:
        """Input for the task, as from a keyboard."""
        if self._feed is not None and data:
            self._line_start = data.endswith(b"\n")
            self._feed.write(data)

    def end_input(self) -> None:
        """The end of input: what somebody types to say so, which after a part of a line only passes that on."""
        self.type(b"\x04" if self._line_start else b"\x04\x04")

    def _taken(self) -> None:
        typed, self._typed = self._typed, []
        for token in typed:
            self._job.reply(token)
        self._job.input_taken()

    @property
    def backlog(self) -> int:
        """Bytes of input that the terminal has not taken yet."""
        return self._feed.backlog if self._feed is not None else 0

    def disconnect(self, sender: str) -> None:
        self._clients.pop(sender, None)

    def _resize(self, payload: dict[str, Any]) -> None:
        size = payload.get("winsize") or payload
        rows, cols = size.get("rows"), size.get("cols")
        if self.master >= 0 and isinstance(rows, int) and isinstance(cols, int):
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
