"""A task's terminal as its clients see it, on a real pseudo terminal without a process."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.shell.pty import Pty


class Terminal:
    """A terminal, and what its job would send."""

    def __init__(self, option: Any, lead: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.logged: list[bytes] = []
        self.ends: list[str] = []
        # The tokens of clients that shall have taken their output.
        self.asked: list[int] = []
        self.watched: dict[int, Callable[[], None]] = {}
        agent = SimpleNamespace(
            watch=self.watched.__setitem__,
            unwatch=self.watched.pop,
            watch_writable=self.watched.__setitem__,
            unwatch_writable=self.watched.pop,
        )
        output = SimpleNamespace(
            data=lambda _rank, _stream, data: self.logged.append(data),
            eof=lambda _rank, stream: self.ends.append(stream),
        )
        job = SimpleNamespace(
            agent=agent,
            output=output,
            options={"pty": option},
            lead=lead,
            input_taken=lambda: None,
            reports=SimpleNamespace(
                reply=lambda token, payload=None, errnum=0: self.sent.append(_reply(token, errnum, payload)),
                ask_drained=self.asked.append,
            ),
        )
        self.ended = 0
        task = SimpleNamespace(rank=0, stream_ended=self._stream_ended, maybe_close=lambda: None)
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
        if self.reading:
            self.read()

    def read(self) -> None:
        """The kernel hands over what was written when it comes to it."""
        assert select.select([self.pty.master], [], [], 10)[0]
        self.watched[self.pty.master]()

    @property
    def reading(self) -> bool:
        return self.pty.master in self.watched

    def ask(self, kind: str, sender: str = "a", token: int = 1, **more: Any) -> None:
        self.pty.request({"payload": {"type": kind, **more}, "token": token, "sender": sender})

    def seen(self, token: int = 1) -> str:
        """What the client of this token was shown."""
        payloads = [op["payload"] or {} for op in self.sent if op["token"] == token]
        return "".join(payload["data"] for payload in payloads if payload.get("type") == "data")

    def prints_a_portion(self) -> None:
        for _ in range(256):
            self.prints(b"x" * 1024)

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


def test_who_attaches_again_sees_the_last_of_what_was_printed(interactive: Terminal) -> None:
    interactive.ask("attach")
    interactive.ask("detach", token=2)
    assert interactive.sent[-2:] == [_reply(1, 61), _reply(2, 0)]
    interactive.prints(b"early ")
    for _ in range(80):
        interactive.prints(b"x" * 1024)
    interactive.prints("ƒ".encode()[:1])
    interactive.ask("attach", token=3)
    interactive.prints("ƒ".encode()[1:])
    seen = interactive.seen(3)
    assert len(seen) <= 1 << 16
    assert seen.endswith("xxƒ")


def _reply(token: int, errnum: int, payload: Any = None) -> dict[str, Any]:
    return {"token": token, "errnum": errnum, "payload": payload}


def test_what_the_first_client_has_to_see_waits_in_the_terminal_when_it_is_much(interactive: Terminal) -> None:
    interactive.prints(b"early ")
    while interactive.reading:
        interactive.prints(b"x" * 1000)
    interactive.prints(b"late")
    interactive.ask("attach")
    assert interactive.seen()[:6] == "early "
    assert len(interactive.seen()) == 1 << 16
    assert interactive.reading
    while not interactive.seen().endswith("late"):
        interactive.read()
    assert interactive.seen()[-5:] == "xlate"


@pytest.mark.parametrize("lead", [True, False])
def test_a_terminal_that_is_captured_or_cannot_be_attached_to_lets_its_task_go_on(lead: bool) -> None:
    terminal = Terminal({"interactive": True, "capture": lead}, lead)
    for _ in range(80):
        terminal.prints(b"x" * 1024)
    assert terminal.reading
    assert sum(map(len, terminal.logged)) == 80 << 10
    assert terminal.pty.awaited is lead
    terminal.close()


def test_what_a_signal_ends_waits_for_nobody(interactive: Terminal) -> None:
    while interactive.reading:
        interactive.prints(b"x" * 1024)
    interactive.pty.signalled(signal.SIGUSR1)
    assert (interactive.pty.awaited, interactive.reading) == (True, False)
    interactive.pty.signalled(signal.SIGTERM)
    assert (interactive.pty.awaited, interactive.reading) == (False, True)


def test_the_lead_shell_may_be_behind_with_what_a_terminal_prints() -> None:
    terminal = Terminal(True)
    terminal.pty.pause_output(True)
    terminal.prints(b"x")
    assert (terminal.reading, terminal.logged) == (False, [])
    terminal.pty.pause_output(False)
    terminal.watched[terminal.pty.master]()
    assert terminal.logged == [b"x"]
    terminal.close()


def test_what_is_printed_last_is_seen_before_the_end(interactive: Terminal) -> None:
    interactive.ask("attach")
    os.write(interactive.pty.slave, b"last \xc6")
    interactive.pty.process_ended(256)
    interactive.watched[interactive.pty.master]()
    interactive.pty.end()
    payloads = [op["payload"] for op in interactive.sent]
    assert [payload and payload["type"] for payload in payloads] == ["attach", "data", "data", "exit", None]
    assert interactive.seen() == "last \ufffd"
    assert payloads[3] == {"type": "exit", "status": 256, "message": "session exiting"}
    assert interactive.sent[-1] == _reply(1, 61)


def test_who_attaches_after_the_end_sees_all_of_it(interactive: Terminal) -> None:
    interactive.prints(b"all")
    interactive.pty.end()
    interactive.pty.process_ended(0)
    assert interactive.pty.awaited
    interactive.ask("attach")
    assert not interactive.pty.awaited
    assert [op["payload"] and op["payload"]["type"] for op in interactive.sent] == ["attach", "data", "exit", None]
    assert interactive.seen() == "all"


def test_all_clients_see_what_is_printed_until_they_leave(interactive: Terminal) -> None:
    interactive.ask("attach", "a", 1)
    interactive.ask("attach", "b", 2)
    interactive.prints(b"both ")
    interactive.ask("detach", "a", 3)
    interactive.prints(b"one")
    assert (interactive.seen(1), interactive.seen(2)) == ("both ", "both one")
    interactive.pty.process_ended(0)
    interactive.pty.end()
    assert [(op["token"], op["errnum"]) for op in interactive.sent[-1:]] == [(2, 61)]


def test_more_than_a_portion_waits_for_the_slowest_client(interactive: Terminal) -> None:
    interactive.ask("attach", "a", 1)
    interactive.ask("attach", "b", 2)
    for _ in range(2):
        interactive.prints_a_portion()
        assert (interactive.asked, interactive.reading) == ([1, 2], False)
        interactive.pty.drained(1)
        assert not interactive.reading
        interactive.pty.drained(2)
        assert interactive.reading
        interactive.asked.clear()


@pytest.mark.parametrize(
    "end",
    [
        lambda terminal: terminal.pty.disconnect("a"),
        lambda terminal: terminal.ask("detach", "a", 2),
        lambda terminal: terminal.ask("attach", "a", 2),
        lambda terminal: terminal.pty.process_ended(0),
        lambda terminal: terminal.pty.signalled(signal.SIGKILL),
    ],
    ids=["gone", "left", "back", "ended", "killed"],
)
def test_a_client_that_takes_nothing_is_waited_for_until_it_or_the_task_goes(
    interactive: Terminal, end: Callable[[Terminal], None]
) -> None:
    interactive.ask("attach", "a", 1)
    interactive.prints_a_portion()
    interactive.pty.signalled(signal.SIGTERM)
    assert not interactive.reading
    end(interactive)
    assert interactive.reading


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


def test_who_sends_more_than_the_terminal_takes_waits_for_an_answer(interactive: Terminal) -> None:
    interactive.ask("attach")
    for token in (2, 3):
        interactive.ask("data", token=token, data="x" * (1 << 20))
    assert [op["token"] for op in interactive.sent] == [1, 2]
    while interactive.pty.backlog:
        os.read(interactive.pty.slave, 1 << 16)
        for fd, ready in list(interactive.watched.items()):
            if fd != interactive.pty.master:
                ready()
    assert interactive.sent[-1] == _reply(3, 0)


@pytest.mark.parametrize(("text", "end"), [(b"", b"\x04"), (b"line\n", b"\x04"), (b"part", b"\x04\x04")])
def test_the_end_of_input_is_what_a_user_would_type(interactive: Terminal, text: bytes, end: bytes) -> None:
    interactive.pty.type(text)
    interactive.pty.end_input()
    got = b""
    while len(got) < len(text + end):
        # The kernel passes on what was typed when it comes to it.
        got += os.read(interactive.pty.slave, 100)
    assert got == text + end


def test_a_terminal_that_nobody_may_attach_to_is_logged_and_ends_both_streams() -> None:
    terminal = Terminal(True)
    terminal.prints(b"out")
    terminal.pty.end()
    terminal.pty.end()
    terminal.close()
    assert (terminal.logged, terminal.ends, terminal.ended, terminal.sent) == ([b"out"], ["stderr", "stdout"], 1, [])
