"""The user's terminal joined to a job's: raw mode, window size and both directions, over the shell's pty service.

A job with `-o pty.interactive` names its terminal's service in the `shell.init` event. While joined, every key goes
to the job; the escape `~.` after a newline detaches, as in ssh.
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
    from typing import Any, Callable, Dict, List

    from headrace.client.handle import Handle, Rpc
    from headrace.client.reactor import Reactor

_CHUNK = 4096
_ESCAPE = b"~"


class TerminalLink:
    """Joins file descriptors 0 and 1 to terminal service `topic` on broker `nodeid` until the job's end or `~.`.

    `detached` is called when the user leaves. Call `close()` to give the terminal its own mode back.
    """

    def __init__(self, handle: Handle, reactor: Reactor, topic: str, nodeid: int, detached: Callable[[], None]) -> None:
        self._handle = handle
        self._reactor = reactor
        self._topic = topic
        self._nodeid = nodeid
        self._detached = detached
        self._line_start = True
        self._escaped = False
        self._saved: List[Any] = termios.tcgetattr(0)
        self._open = True
        tty.setraw(0)
        request = {"type": "attach", "mode": "rw", "winsize": _window_size()}
        handle.stream(topic, request, nodeid).then(self._answered)
        reactor.add_fd(0, self._keys)
        reactor.add_signal(signal.SIGWINCH, self._resized)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._reactor.remove_fd(0)
            termios.tcsetattr(0, termios.TCSADRAIN, self._saved)

    def _send(self, entry: Dict[str, Any]) -> None:
        self._handle.rpc(self._topic, entry, self._nodeid).then(_ignore)

    def _answered(self, call: Rpc) -> None:
        try:
            answer = call.get()
        except OSError as exc:
            self.close()
            if exc.errno not in (errno.ENODATA, errno.ENOSYS):
                sys.stderr.write(f"flux-job: pty: {exc.strerror}\n")
            return
        if answer.get("type") == "data":
            os.write(1, answer["data"].encode("utf-8", "surrogateescape"))
        elif answer.get("type") == "exit":
            self.close()

    def _keys(self, _revents: int) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._reactor.remove_fd(0)
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
        self._send({"type": "resize", "winsize": _window_size()})


def _window_size() -> Dict[str, int]:
    size = os.get_terminal_size(0)
    return {"rows": size.lines, "cols": size.columns}


def _ignore(call: Rpc) -> None:
    try:
        call.get()
    except OSError:
        pass
