"""Connects the user's terminal to a job's terminal through the shell's pty service.

A job with `-o pty.interactive` announces its terminal's service in the `shell.init` event. While attached, the user's
terminal is in raw mode, every key is sent to the job, and window size changes are sent, too. The escape `~.` after a
newline detaches, as in ssh.

If standard input is not a terminal, in a script or a pipe, the command attaches as well: the job waits for a client,
and the user would wait for the job. Standard input is then sent as if it were typed, with the EOF key at its end.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import tty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from headrace.wire.client.handle import Handle, Rpc
    from headrace.wire.client.reactor import Reactor

_CHUNK = 4096
_ESCAPE = b"~"
_END = b"\x04"
# Errors that need no message: the job has ended, before or during the request, or its node is lost (said elsewhere).
_OVER = (errno.ENODATA, errno.ENOSYS, errno.ENOENT, errno.EHOSTUNREACH)
# Errors after which the shell with the terminal is gone: it was killed, or its node is lost.
_LOST = (errno.ENOSYS, errno.EHOSTUNREACH, errno.ENOENT)


class TerminalLink:
    """Attaches stdin and stdout to pty service `topic` on broker `nodeid`, until the job ends or `~.`.

    `settled(joined)` is called once it is known whether attaching succeeded, `detached` when the user detaches. Call
    `close()` to restore the mode of the user's terminal.
    """

    def __init__(
        self,
        handle: Handle,
        reactor: Reactor,
        topic: str,
        nodeid: int,
        settled: Callable[[bool], None],
        detached: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._reactor = reactor
        self._topic = topic
        self._nodeid = nodeid
        self._settled: Optional[Callable[[bool], None]] = settled
        self._detached = detached
        self._line_start = True
        self._escaped = False
        self._reads = False
        self._open = True
        # The original mode of the user's terminal; None if stdin is not a terminal.
        self._saved: Optional[List[Any]] = None
        if os.isatty(0):
            self._saved = termios.tcgetattr(0)
            tty.setraw(0)
        request = {"type": "attach", "mode": "rw", **_window_size()}
        handle.stream(topic, request, nodeid).then(self._answered)
        if self._saved is not None:
            self._read(True)
        reactor.add_signal(signal.SIGWINCH, self._resized)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._read(False)
            if self._saved is not None:
                termios.tcsetattr(0, termios.TCSADRAIN, self._saved)

    def _read(self, on: bool) -> None:
        if on != self._reads:
            self._reads = on
            if on:
                self._reactor.add_fd(0, self._keys if self._saved is not None else self._input)
            else:
                self._reactor.remove_fd(0)

    def _send(self, entry: Dict[str, Any], then: Optional[Callable[[Rpc], None]] = None) -> None:
        self._handle.rpc(self._topic, entry, self._nodeid).then(then or _ignore)

    def _answered(self, call: Rpc) -> None:
        settled, self._settled = self._settled, None
        try:
            answer = call.get()
        except OSError as exc:
            joined = settled is None and self._open
            self.close()
            if joined and exc.errno in _LOST:
                sys.stderr.write("flux-job: remote pty disappeared\n")
            elif exc.errno not in _OVER:
                sys.stderr.write(f"flux-job: pty: {exc.strerror}\n")
            if settled is not None:
                settled(False)
            return
        if settled is not None:
            settled(True)
            if self._saved is None:
                self._read(True)
        if answer.get("type") == "data":
            sys.stdout.buffer.write(answer["data"].encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
        elif answer.get("type") == "exit":
            self.close()

    def _input(self, _revents: int) -> None:
        """Send a portion of input that is not from a terminal.

        The next one is read after the response to this.
        """
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        self._read(False)
        if data:
            self._line_start = data.endswith(b"\n")
            self._send({"type": "data", "data": data.decode("utf-8", "surrogateescape")}, self._taken)
        else:
            # After an incomplete line, the first EOF key only flushes that line.
            end = _END if self._line_start else _END * 2
            self._send({"type": "data", "data": end.decode()})

    def _taken(self, call: Rpc) -> None:
        _ignore(call)
        if self._open:
            self._read(True)

    def _keys(self, _revents: int) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._read(False)
            return
        kept = bytearray()
        for byte in data:
            char = bytes((byte,))
            if self._escaped:
                self._escaped = False
                if char == b".":
                    self._send({"type": "detach"})
                    self.close()
                    self._detached()
                    return
                if char != _ESCAPE:
                    kept += _ESCAPE
            elif self._line_start and char == _ESCAPE:
                self._escaped = True
                continue
            kept += char
            self._line_start = char in (b"\r", b"\n")
        if kept:
            self._send({"type": "data", "data": bytes(kept).decode("utf-8", "surrogateescape")})

    def _resized(self) -> None:
        if self._open:
            self._send({"type": "resize", **_window_size()})


def _window_size() -> Dict[str, Dict[str, int]]:
    """The request member with the size of the user's terminal; empty without a terminal."""
    for fd in range(3):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        return {"winsize": {"rows": size.lines, "cols": size.columns}}
    return {}


def _ignore(call: Rpc) -> None:
    try:
        call.get()
    except OSError:
        pass
