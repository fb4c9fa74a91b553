"""A task's terminal as its clients see it, on a real pseudo terminal without a process."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.shell.pty import Pty


class Terminal:
    """A terminal, and what its job would send."""

    def __init__(self, option: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.logged: list[bytes] = []
        self.ends: list[str] = []
        self.watched: dict[int, Callable[[], None]] = {}
        agent = SimpleNamespace(
            send=self.sent.append,
            watch=self.watched.__setitem__,
            unwatch=self.watched.pop,
            watch_writable=self.watched.__setitem__,
            unwatch_writable=self.watched.pop,
        )
        output = SimpleNamespace(
            data=lambda _rank, _stream, data: self.logged.append(data),
            eof=lambda _rank, stream: self.ends.append(stream),
        )
        job = SimpleNamespace(agent=agent, output=output, options={"pty": option})
        self.ended = 0
        task = SimpleNamespace(rank=0, stream_ended=self._stream_ended)
        self.pty = Pty(job, task)  # type: ignore[arg-type]
        self.pty.start()
        # As it is, without newlines turned to carriage returns.
        mode = termios.tcgetattr(self.pty.slave)
        mode[1] &= ~termios.OPOST
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self.pty.slave, termios.TCSANOW, mode)

    def _stream_ended(self) -> None:
        self.ended += 1

    def prints(self, data: bytes) -> None:
        os.write(self.pty.slave, data)
        self.watched[self.pty.master]()

    def ask(self, kind: str, sender: str = "a", token: int = 1, **more: Any) -> None:
        self.pty.request({"payload": {"type": kind, **more}, "token": token, "sender": sender})

    def seen(self, token: int = 1) -> str:
        """What the client of this token was shown."""
        payloads = [op["payload"] or {} for op in self.sent if op["token"] == token]
        return "".join(payload["data"] for payload in payloads if payload.get("type") == "data")

    def close(self) -> None:
        if self.pty.master >= 0:
            self.pty.end()
        os.close(self.pty.slave)


@pytest.fixture
def interactive() -> Iterator[Terminal]:
    terminal = Terminal({"interactive": True})
    yield terminal
    terminal.close()


def test_a_character_that_comes_in_two_pieces_is_one(interactive: Terminal) -> None:
    interactive.ask("attach", rows=24, cols=80)
    for byte in "jobƒ→".encode():
        interactive.prints(bytes([byte]))
    assert interactive.seen() == "jobƒ→"


def test_who_attaches_first_sees_the_last_of_what_was_printed(interactive: Terminal) -> None:
    interactive.prints(b"early ")
    for _ in range(80):
        interactive.prints(b"x" * 1024)
    interactive.prints("ƒ".encode()[:1])
    interactive.ask("attach")
    interactive.prints("ƒ".encode()[1:])
    seen = interactive.seen()
    assert len(seen) <= 1 << 16
    assert seen.endswith("xxƒ")


def test_all_clients_see_what_is_printed_until_they_leave(interactive: Terminal) -> None:
    interactive.ask("attach", "a", 1)
    interactive.ask("attach", "b", 2)
    interactive.prints(b"both ")
    interactive.ask("detach", "a", 3)
    interactive.prints(b"one")
    assert (interactive.seen(1), interactive.seen(2)) == ("both ", "both one")
    interactive.pty.process_ended(0)
    assert [(op["token"], op["errnum"]) for op in interactive.sent[-1:]] == [(2, 61)]


def test_windows_have_the_size_of_their_clients_as_far_as_it_is_one(interactive: Terminal) -> None:
    interactive.ask("attach", winsize={"rows": 50, "cols": 132})
    interactive.ask("resize", rows="x", cols=3)
    interactive.ask("resize", rows=1 << 40, cols=3)
    got = fcntl.ioctl(interactive.pty.slave, termios.TIOCGWINSZ, bytes(8))
    assert struct.unpack("HHHH", got)[:2] == (50, 132)


def test_what_the_terminal_does_not_take_at_once_follows(interactive: Terminal) -> None:
    interactive.ask("attach")
    text = "".join(f"{n:07}\n" for n in range(20_000))
    interactive.ask("data", data=text)
    got = b""
    while len(got) < len(text):
        got += os.read(interactive.pty.slave, 1 << 16)
        for fd, ready in list(interactive.watched.items()):
            if fd != interactive.pty.master:
                ready()
    assert got.decode() == text


def test_a_terminal_that_nobody_may_attach_to_is_logged_and_ends_both_streams() -> None:
    terminal = Terminal(True)
    terminal.prints(b"out")
    terminal.pty.end()
    terminal.pty.end()
    terminal.close()
    assert (terminal.logged, terminal.ends, terminal.ended, terminal.sent) == ([b"out"], ["stderr", "stdout"], 1, [])
