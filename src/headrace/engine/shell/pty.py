"""A task's terminal: captured into the job's output, or passed to clients that attach (`flux alloc`).

A client uses the shell's `pty` method, a streaming RPC. It sends `attach` with its window size, then `write` and
`resize`. The responses are `data` with output of the task, and `exit`. No output is lost before the first client
attaches: the task blocks once its output fills the buffer here, and a task that has ended keeps its job active until a
client attaches.
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

from headrace.engine.process.feed import Feed

from . import options as known

if TYPE_CHECKING:
    from headrace.engine.process.operations import Rpc

    from .host import Job, Terminated

_READ = 1 << 16
# Flow control of input: responses to `write` are delayed while more bytes than this are queued for the terminal.
_TYPED = 1 << 20
# Flow control of output: after this number of bytes, every client has to confirm their receipt.
_PORTION = 256 << 10
# Signals that do not end a process by default, or that most jobs handle. After them, the job still waits for the first
# client.
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
    """Both ends of a pseudo terminal. The caller closes `slave` once the process has started."""

    def __init__(self, job: Job, task: Terminated) -> None:
        self._job = job
        self._task = task
        self.master, self.slave = os.openpty()
        os.set_inheritable(self.master, False)
        option = job.options.get("pty")
        self._interactive = job.lead and task.rank == 0 and known.interactive_pty(job.options)
        self._capture = not self._interactive or bool(isinstance(option, dict) and option.get("capture"))
        # True until the first client attaches. The job does not end before that.
        self.awaited = self._interactive
        self._clients: dict[str, int] = {}
        # Output while no client is attached. If the task blocks when this is full, all of it, else the last part.
        self._early_output = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._feed: Feed | None = None
        self._typed: list[int] = []
        self._line_start = True
        # Three reasons for not reading: `_early_output` is full before the first client attaches (`_full`), flow
        # control of the job's output (`_behind`), and clients that have not received the last portion (`_slow`,
        # tokens).
        self._full = self._behind = False
        self._slow: set[int] = set()
        # Bytes of the current portion.
        self._shown = 0
        # True once the process has ended or was killed. Then flow control by clients is off, so that a stopped client
        # does not delay the end: the kernel limits the size of the remaining output.
        self._ends = False
        self._reading = False
        self._status: int | None = None

    def start(self) -> None:
        if self._job.output is not None:
            # A terminal has only one output stream, so stderr ends at once.
            self._job.output.eof(self._task.rank, "stderr")
        os.set_blocking(self.master, False)
        self._feed = Feed(self._job.agent, os.dup(self.master), self._taken)
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        wanted = self.master >= 0 and not (self._full or self._behind or self._slow)
        if wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._job.agent.watch(self.master, self._readable)
        else:
            self._job.agent.unwatch(self.master)

    def pause_output(self, on: bool) -> None:
        """Stop reading output (`on`), so that the process blocks when the terminal is full, or resume it."""
        self._behind = on
        self._read_or_wait()

    def _readable(self) -> None:
        waits = self.awaited and not self._capture
        try:
            data = os.read(self.master, _READ - len(self._early_output) if waits else _READ)
        except BlockingIOError:
            return
        except OSError:
            # EIO means that the last process has closed the terminal.
            data = b""
        if not data:
            self.end()
            return
        if self._clients:
            # The decoder keeps incomplete UTF-8 sequences, because a terminal is read in pieces of 4 KiB.
            self._show(self._decoder.decode(data))
        elif self._interactive:
            self._early_output += data
            del self._early_output[:-_READ]
            self._full = waits and len(self._early_output) == _READ
            self._read_or_wait()
        if self._capture and self._job.output is not None:
            self._job.output.data(self._task.rank, "stdout", data)

    def _show(self, text: str) -> None:
        for token in self._clients.values() if text else ():
            self._job.reports.reply(token, {"type": "data", "data": text})
        self._shown += len(text)
        if self._shown >= _PORTION and not self._ends:
            self._shown = 0
            self._slow.update(self._clients.values())
            for token in self._clients.values():
                self._job.reports.ask_drained(token)
            self._read_or_wait()

    def drained(self, token: int) -> None:
        """Handle the confirmation that a client has received the last portion."""
        self._slow.discard(token)
        self._read_or_wait()

    def _flush_output(self) -> None:
        self._ends = True
        self._slow.clear()
        self._read_or_wait()

    def end(self) -> None:
        """Close the terminal, since its last output has been read."""
        if self.master < 0:
            return
        output = self._job.output
        self.close()
        if output is not None:
            output.eof(self._task.rank, "stdout")
        self._report_exit()
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
        """Handle the end of the terminal's session leader. Its last output may still be unread."""
        self._status = status
        self._flush_output()
        self._report_exit()

    def _report_exit(self) -> None:
        if self._status is None or self.master >= 0:
            return
        self._show(self._decoder.decode(b"", final=True))
        for token in self._clients.values():
            self._job.reports.reply(token, {"type": "exit", "status": self._status, "message": "session exiting"})
            self._job.reports.reply(token, None, errno.ENODATA)
        self._clients.clear()

    def signalled(self, signum: int) -> None:
        """Handle a signal to the job. If the signal may end the job, stop waiting for the first client."""
        if signum not in _NO_END:
            self._stop_awaiting()
        if signum == signal.SIGKILL:
            self._flush_output()

    def _stop_awaiting(self) -> None:
        if self.awaited:
            self.awaited = self._full = False
            self._read_or_wait()
            self._task.maybe_close()

    def request(self, op: Rpc) -> None:
        """Handle a request: attach, write, resize or detach. Raises KeyError, TypeError, ValueError."""
        payload, token, sender = op["payload"], op["token"], op.get("sender", "")
        kind = payload["type"]
        if kind == "attach":
            self._resize(payload)
            # A client that attaches again may never confirm a portion on its former stream.
            self.disconnect(sender)
            self._clients[sender] = token
            self._job.reports.reply(token, {"type": "attach"})
            early, self._early_output = self._decoder.decode(self._early_output), bytearray()
            if early:
                self._job.reports.reply(token, {"type": "data", "data": early})
            self._report_exit()
            self._stop_awaiting()
            return
        if kind in ("data", "write"):
            self.type(payload["data"].encode("utf-8", "surrogateescape"))
        elif kind == "resize":
            self._resize(payload)
        elif kind == "detach":
            attached = self._clients.get(sender)
            self.disconnect(sender)
            if attached is not None:
                self._job.reports.reply(attached, None, errno.ENODATA)
        if kind in ("data", "write") and self._feed is not None and self._feed.backlog > _TYPED:
            self._typed.append(token)
        else:
            self._job.reports.reply(token)

    def type(self, data: bytes) -> None:
        """Send input to the task, as from a keyboard."""
        if self._feed is not None and data:
            self._line_start = data.endswith(b"\n")
            self._feed.write(data)

    def end_input(self) -> None:
        """Type end-of-file (Ctrl-D): twice after an incomplete line, since the first only flushes the line."""
        self.type(b"\x04" if self._line_start else b"\x04\x04")

    def _taken(self) -> None:
        typed, self._typed = self._typed, []
        for token in typed:
            self._job.reports.reply(token)
        self._job.input_taken()

    @property
    def backlog(self) -> int:
        """Bytes of input that the terminal has not accepted yet."""
        return self._feed.backlog if self._feed is not None else 0

    def disconnect(self, sender: str) -> None:
        token = self._clients.pop(sender, None)
        if token is not None:
            self.drained(token)

    def _resize(self, payload: dict[str, Any]) -> None:
        size = payload.get("winsize") or payload
        rows, cols = size.get("rows"), size.get("cols")
        if self.master >= 0 and isinstance(rows, int) and isinstance(cols, int):
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
