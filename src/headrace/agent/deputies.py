"""Deputies of an agent: forks of it that take over its places, one each as far as there are processors.

An agent stands still while what it spawns is not executed yet and while it moves to the processor that a task is bound
to: a third of what a short job takes. With a deputy for each place the others go on meanwhile, and a deputy stays on
the processors of its only place. Deputies are forked when jobs of two places have ended with another to take over, and
talk to the agent alone: what they report passes through it unread, what is not for its own jobs it gives to all. When
the queue is gone, so are they.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..shell import affinity
from . import keeper, linux
from .begun import RINGS
from .feed import Feed
from .protocol import Op, frame

if TYPE_CHECKING:
    from .agent import Agent

# More than these few are not faster: by then the broker is the slowest. The agent itself leaves traces, too.
MOST = RINGS - 1
# What a deputy answers to a recall: it starts nothing of its own any more, and has said what it started.
SETTLED = frame([])
# What it answers to "ask": that it has the job in question, or has not.
MINE, NOT_MINE = frame([{}]), frame([{}, {}])
# What it answers to "idle": that it has nothing to do, or has something.
IDLE, BUSY = frame([{}] * 3), frame([{}] * 4)
_IS_IDLE = frame([{"op": "idle"}])
_LENGTH = struct.Struct("<I")
_READ = 1 << 18
# How many places are told apart; on a large node any set of cores may be one.
_PLACES = 4096
# Seconds after which one with nothing to do ends.
_KEPT = 10.0
# Seconds that deputies get to end what they run.
_PATIENCE = 2.5


class _Line:
    """The agent's end of the socket to a deputy."""

    def __init__(self, agent: Agent, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.sock = sock
        self.buffer = bytearray()
        # Never waiting: the deputy may wait for us to read. A descriptor of its own, since it may be watched.
        self._out = Feed(agent, os.dup(sock.fileno()))
        # Whether it was asked if it is idle and has not answered, and whether it was told nothing since then.
        self.asked = self.may_go = False

    def write(self, data: bytes) -> None:
        self.may_go = False
        self._out.write(data)

    def close(self) -> None:
        self._out.close()
        self.sock.close()


class _Question:
    """Who has a job? `owing` have not answered yet."""

    def __init__(self, if_nobody: Callable[[], None], owing: set[int]) -> None:
        self.if_nobody = if_nobody
        self.owing = owing
        self.found = False


class Deputies:
    """All deputies of `agent`, `most` of them. `serve(sock, index)` is what one does."""

    def __init__(self, agent: Agent, serve: Callable[[socket.socket, int], None], most: int) -> None:
        self._agent = agent
        self._serve = serve
        self._most = most
        self._lines: dict[int, _Line] = {}
        self._looks = False
        self._places: dict[str, int] = {}
        # Recalls: the answer to each, and who has not settled yet.
        self._recalls: deque[tuple[Op, set[int]]] = deque()
        self._questions: list[_Question] = []

    def start(self, place: str, op: Op) -> bool:
        """Have the deputy for `place` start a job, which leaves that to another. False if there is none."""
        index = self._of(place)
        if index is None:
            return False
        self._lines[index].write(frame([{**op, "op": "start", "leaves": True}]))
        return True

    def _of(self, place: str) -> int | None:
        index = self._places.get(place)
        if index is None:
            if len(self._places) > _PLACES:
                self._places.clear()
            index = self._places[place] = len(self._places)
        limit = min(len(affinity.everything()), self._most)
        if len(self._places) < 2 or limit < 2:
            return None
        index %= limit
        try:
            for each in range(index + 1):
                if each not in self._lines:
                    self._fork(each)
        except OSError:
            # Too many processes: we do it all ourselves.
            return None
        return index

    def pass_on(self, op: Op) -> bool:
        """What may be for a job of any of them. False if there are none."""
        if self._lines:
            data = frame([op])
            for line in self._lines.values():
                line.write(data)
        return bool(self._lines)

    def recall(self, answer: Op) -> None:
        """Say `answer` as soon as all deputies have said what they started."""
        self._recalls.append((answer, set(self._lines)))
        self.pass_on({"op": "recall"})
        self._answer()

    def ask(self, op: Op, if_nobody: Callable[[], None]) -> bool:
        """Have the deputy that runs job `op["job"]` do `op`. False if there are none."""
        if self.pass_on({"op": "ask", "what": op}):
            self._questions.append(_Question(if_nobody, set(self._lines)))
        return bool(self._lines)

    def _answer(self) -> None:
        while self._recalls and not self._recalls[0][1]:
            self._agent.send(self._recalls.popleft()[0])

    def _settled(self, index: int) -> None:
        for _said, owing in self._recalls:
            if index in owing:
                owing.discard(index)
                break
        self._answer()

    def _told(self, index: int, has_it: bool) -> None:
        # Each answers in the order in which it was asked.
        question = next(each for each in self._questions if index in each.owing)
        question.owing.discard(index)
        question.found |= has_it
        if not question.owing:
            self._questions.remove(question)
            if not question.found:
                question.if_nobody()

    def _readable(self, index: int) -> None:
        line = self._lines[index]
        data = line.sock.recv(_READ)
        if not data:
            # It is gone, which ends us.
            self._agent.unwatch(line.sock.fileno())
            return
        line.buffer += data
        buffer, whole = line.buffer, 0
        while len(buffer) - whole >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(buffer, whole)[0]
            if len(buffer) - whole < size:
                break
            if size > len(BUSY):
                whole += size
                continue
            # Not for the broker; what came before it is to be there before what follows from it.
            said = bytes(buffer[whole : whole + size])
            self._agent.relay(bytes(buffer[:whole]))
            del buffer[: whole + size]
            whole = 0
            if said == SETTLED:
                self._settled(index)
            elif said in (IDLE, BUSY):
                line.asked = False
                if said == IDLE and line.may_go:
                    self._let_go(index)
                    return
            else:
                self._told(index, said == MINE)
        self._agent.relay(bytes(buffer[:whole]))
        del buffer[:whole]

    def _look(self) -> None:
        for line in self._lines.values():
            if not line.asked:
                line.write(_IS_IDLE)
                line.asked = line.may_go = True
        self._looks = bool(self._lines)
        if self._looks:
            self._agent.after(_KEPT, self._look)

    def _let_go(self, index: int) -> None:
        """It has said all, and nothing was said to it since then."""
        line = self._lines.pop(index)
        self._agent.children[line.pid] = lambda _status: None
        self._agent.unwatch(line.sock.fileno())
        line.close()

    def _fork(self, index: int) -> None:
        own = os.getpid()
        ours, its = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            its.close()
            raise
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                _close_all_but(its.fileno(), self._agent.handout_fd())
                linux.name_process(f"{keeper.DEPUTY}{index}", f"flux-deputy: starts tasks, number {index}")
                keeper.follow(own)
                self._serve(its, index)
                code = 0
            except BaseException:
                traceback.print_exc(file=sys.stderr)
            finally:
                os._exit(code)
        its.close()
        ours.setblocking(False)
        if not self._looks:
            self._looks = True
            self._agent.after(_KEPT, self._look)
        self._lines[index] = _Line(self._agent, pid, ours)
        self._agent.children[pid] = lambda _status: self._agent.stop()
        self._agent.watch(ours.fileno(), partial(self._readable, index))

    def stopped(self, pid: int) -> None:
        """A child of the agent was stopped: tasks may be, deputies not."""
        if any(line.pid == pid for line in self._lines.values()):
            keeper.have_go_on(pid)

    def end(self) -> None:
        """Have them end what they run, and end."""
        for line in self._lines.values():
            line.close()
        deadline = time.monotonic() + _PATIENCE
        left = [line.pid for line in self._lines.values()]
        while left and time.monotonic() < deadline:
            for pid in list(left):
                with suppress(ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0:
                        continue
                left.remove(pid)
            if left:
                time.sleep(0.002)


def _close_all_but(*kept: int) -> None:
    """A pipe of a task that stays open here would never end for the others."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            with suppress(OSError):
                os.close(fd)
