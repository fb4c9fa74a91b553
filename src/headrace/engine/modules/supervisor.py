"""Keeps a program running for as long as a module is loaded.

The program is an ordinary subprocess (rexec): it uses only the broker's socket, and it ends with the instance, even if
the broker is killed. If it ends by itself, it is restarted after a pause that doubles up to a minute. What it prints on
stderr is logged.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.message import Message
from headrace.formats.spec.wait_status import how_ended

_STDOUT, _STDERR = 1, 2
_LONGEST_LINE = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# If the program has run for this many seconds, the next pause is short again.
_LONG_RUN = 60.0
# Seconds for the program to end after SIGTERM.
_GRACE = 20.0


class Supervisor:
    """Runs a command. `printed` is called for each line on stdout, `ended` when the program has ended by itself."""

    def __init__(
        self,
        ctx: ModuleContext,
        command: list[str],
        printed: Callable[[bytes], None] = lambda _line: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.ctx = ctx
        self.command = command
        self.pid = 0
        self.starts = 0
        self._printed = printed
        self._when_ended = ended
        self._began = 0.0
        self._pause = _FIRST_PAUSE
        self._timer: Any = None
        # Created when the module is unloaded, and set when the program has ended.
        self._exited: asyncio.Event | None = None
        ctx.on_unload(self._end)
        self._start()

    def restart(self, command: list[str]) -> None:
        """Run another command in place of the program."""
        self.command, self._pause = command, _FIRST_PAUSE
        self.kill(signal.SIGTERM)

    def kill(self, number: int) -> None:
        """Send a signal, unless the program is not running."""
        if self.pid:
            self.ctx.call("rexec.kill", {"pid": self.pid, "signum": int(number)})

    def _start(self) -> None:
        self._timer = None
        self.starts += 1
        self._began = self.ctx.monotonic()
        lines = {"stdout": LineReader(_LONGEST_LINE), "stderr": LineReader(_LONGEST_LINE)}

        def answered(reply: Message) -> None:
            if reply.errnum:
                self._ended(reply.errnum)
                return
            body = reply.obj
            if body["type"] == "started":
                self.pid = body["pid"]
                end = {"stream": "stdin", "rank": str(self.ctx.rank), "eof": True}
                self.ctx.call("rexec.write", {"matchtag": reply.matchtag, "io": end})
                if self._exited is not None:
                    self.kill(signal.SIGTERM)
            elif body["type"] == "output":
                self._output(body["io"], lines[body["io"]["stream"]])
            elif body["type"] == "finished" and self._exited is None:
                self.ctx.log(logging.ERROR, f"the service has ended: {how_ended(body['status'])}")

        cmd = {
            "cmdline": self.command,
            "cwd": os.getcwd(),
            "env": dict(os.environ),
            "opts": {},
            "channels": [],
        }
        self.ctx.call("rexec.exec", {"cmd": cmd, "flags": _STDOUT | _STDERR}, answered, streaming=True)

    def _output(self, io: dict[str, Any], reader: LineReader) -> None:
        data = io.get("data", "")
        lines = reader.feed(base64.b64decode(data) if io.get("encoding") == "base64" else data.encode())
        for line in lines:
            if io["stream"] == "stdout":
                self._printed(line)
            else:
                self.ctx.log(logging.ERROR, line.decode("utf-8", "replace"))

    def _ended(self, errnum: int) -> None:
        """Handle the end of the program (ENODATA), or a failure to start it: start it again after a pause."""
        self.pid = 0
        self._when_ended()
        if self._exited is not None:
            self._exited.set()
            return
        if errnum != errno.ENODATA:
            self.ctx.log(logging.ERROR, f"the service cannot be started: {os.strerror(errnum)}")
        if self.ctx.monotonic() - self._began >= _LONG_RUN:
            self._pause = _FIRST_PAUSE
        self._timer = self.ctx.call_later(self._pause, self._start)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _end(self) -> None:
        self._exited = asyncio.Event()
        if self._timer is not None:
            self._timer.cancel()
        elif self.pid:
            self.kill(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._exited.wait(), _GRACE)
            except asyncio.TimeoutError:
                self.ctx.log(logging.ERROR, f"the service has not ended within {_GRACE:.0f} s, and is killed")
                self.kill(signal.SIGKILL)
