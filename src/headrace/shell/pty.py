"""A task's terminal: captured into the job's output, or handed to a client that attached to it (`flux alloc`).

The client speaks the shell's `pty` method, a stream: `attach` with its window size, then `write` and `resize`; what the
task prints comes back as `data`, its end as `exit`.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING, Any

from ..agent.feed import Feed

if TYPE_CHECKING:
    from .job import ShellJob
    from .task import Task

_READ = 1 << 16


class Pty:
    """Both ends of a pseudo terminal; `slave` belongs to the starting process until it runs."""

    def __init__(self, job: ShellJob, task: Task) -> None:
        self._job = job
        self._task = task
        self.master, self.slave = os.openpty()
        os.set_inheritable(self.master, False)
        option = job.options.get("pty")
        self._interactive = isinstance(option, dict) and bool(option.get("interactive"))
        self._capture = not self._interactive or bool(isinstance(option, dict) and option.get("capture"))
        self._clients: dict[str, int] = {}
        # What the task printed before anybody attached: the last of it.
        self._held = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._feed: Feed | None = None

    def start(self) -> None:
        if self._job.output is not None:
            # A terminal is one stream: nothing will come on the other.
            self._job.output.eof(self._task.rank, "stderr")
        os.set_blocking(self.master, False)
        self._job.agent.watch(self.master, self._readable)
        self._feed = Feed(self._job.agent, os.dup(self.master))

    def _readable(self) -> None:
        try:
            data = os.read(self.master, _READ)
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
            text = self._decoder.decode(data)
            for token in self._clients.values() if text else ():
                self._send(token, {"type": "data", "data": text})
        elif self._interactive:
            self._held += data
            del self._held[:-_READ]
        if self._capture and self._job.output is not None:
            self._job.output.data(self._task.rank, "stdout", data)

    def end(self) -> None:
        """The terminal's last output was read."""
        if self.master < 0:
            return
        agent, output = self._job.agent, self._job.output
        agent.unwatch(self.master)
        if output is not None:
            output.eof(self._task.rank, "stdout")
        self.close()
        self._task.stream_ended()

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def process_ended(self, status: int) -> None:
        for token in self._clients.values():
            self._send(token, {"type": "exit", "status": status, "message": "session exiting"})
            reply = {"op": "rpc-reply", "token": token, "errnum": errno.ENODATA, "payload": None, "text": ""}
            self._job.agent.send(reply)
        self._clients.clear()

    def request(self, op: dict[str, Any]) -> None:
        """A client's request: attach, write, resize or detach. Raises KeyError, TypeError, ValueError."""
        payload, token, sender = op["payload"], op["token"], op.get("sender", "")
        kind = payload["type"]
        if kind == "attach":
            self._clients[sender] = token
            self._resize(payload)
            self._send(token, {"type": "attach"})
            if self._held:
                self._send(token, {"type": "data", "data": self._decoder.decode(self._held)})
                self._held.clear()
            return
        if kind in ("data", "write") and self._feed is not None:
            self._feed.write(payload["data"].encode("utf-8", "surrogateescape"))
        elif kind == "resize":
            self._resize(payload)
        elif kind == "detach":
            self.disconnect(sender)
        if not op.get("noresponse"):
            self._job.agent.send({"op": "rpc-reply", "token": token, "errnum": 0, "payload": None, "text": ""})

    def disconnect(self, sender: str) -> None:
        self._clients.pop(sender, None)

    def _resize(self, payload: dict[str, Any]) -> None:
        size = payload.get("winsize") or payload
        rows, cols = size.get("rows"), size.get("cols")
        if self.master >= 0 and isinstance(rows, int) and isinstance(cols, int):
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _send(self, token: int, payload: dict[str, Any]) -> None:
        self._job.agent.send({"op": "rpc-reply", "token": token, "errnum": 0, "payload": payload, "text": ""})
