"""`feasibility.check`: checks of guests run only while the scheduler has nothing else to do.

The owner's checks run at once. A guest's check could keep the scheduler from starting jobs, so the size of its jobspec
is limited before anything is expanded. A search of the graph may still take long, because it visits every vertex. So it
runs in a fork of the scheduler, at a lower priority and with limits on processor time and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import signal
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.formats.spec import constraint
from headrace.formats.spec import jobspec as js
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Exceptions raised for an invalid jobspec. RFC 14 is not checked, since a request may have only resources.
MALFORMED = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
# Limits on a guest's jobspec: bytes of its resources and constraint as JSON, and its `constraint.size`.
MOST_BYTES = 32 << 10
MOST_SIZE = 16 << 10
# Limits on waiting and running checks: per guest, and of all guests together.
MOST_CHECKS = 32
MOST_CHECKS_OF_ALL = 256
# Limits on a fork: seconds of processor time, and bytes of memory in addition to the scheduler's.
MOST_SECONDS = 2
_MOST_MEMORY = 64 << 20
# Most characters of an error text. A pipe takes them in one write.
_LONGEST = 8 << 10
# Seconds until a check is retried while the scheduler is busy.
_RETRY_AFTER = 0.005


def of_request(msg: Message) -> dict[str, Any]:
    """The jobspec of a request. Raises RpcError(EPROTO) for text that is not a JSON object."""
    jobspec = msg.obj["jobspec"]
    if isinstance(jobspec, str):
        try:
            jobspec = msgspec.json.decode(jobspec)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
            raise RpcError(errno.EPROTO, f"{msg.topic}: jobspec: not JSON: {exc}") from None
    if not isinstance(jobspec, dict):
        raise RpcError(errno.EPROTO, f"{msg.topic}: jobspec: expected object, got {type(jobspec).__name__}")
    return jobspec


def malformed(exc: Exception) -> RpcError:
    """The error for a jobspec that raised `exc`, one of MALFORMED."""
    return RpcError(errno.EINVAL, f"jobspec: not what RFC 14 describes ({type(exc).__name__}: {exc})")


class GuestChecks:
    """Handles requests by `check(msg)`, which returns EMPTY or raises RpcError.

    Guests' checks run one after another. `busy()` returns True while jobs wait for the scheduler. With `apart`, guests'
    checks run in a fork; the process must not have other threads.
    """

    def __init__(
        self, ctx: ModuleContext, check: Callable[[Message], Any], busy: Callable[[], bool], apart: bool
    ) -> None:
        self._ctx = ctx
        self._check = check
        self._busy = busy
        self._apart = apart
        self._waiting: deque[tuple[Message, asyncio.Future[Any]]] = deque()
        self._scheduled = False
        # The number of waiting and running checks by guest.
        self._under_way: Counter[int] = Counter()
        # The pid of the fork (0 if there is none), and the sender of the check that it runs.
        self._pid = 0
        self._sender = ""
        ctx.on_disconnect(self._disconnected)
        ctx.on_unload(self._kill)

    def __call__(self, msg: Message) -> Any:
        """The response to `msg`, or a future of it. Raises RpcError."""
        if msg.rolemask & m.ROLE_OWNER:
            return self._check(msg)
        self._refuse_many(msg.userid)
        _refuse_large(of_request(msg))
        # The decoded object would take several times the memory of the payload while the request waits.
        msg.forget_object()
        answer: asyncio.Future[Any] = self._ctx.loop.create_future()
        self._under_way[msg.userid] += 1
        answer.add_done_callback(lambda _answer: self._done(msg))
        self._waiting.append((msg, answer))
        self._schedule_next(0.0)
        return answer

    def _refuse_many(self, userid: int) -> None:
        """Raise RpcError(EAGAIN) if a guest, or all guests together, have too many checks under way."""
        for who, number, most in (
            (f"user {userid}", self._under_way[userid], MOST_CHECKS),
            ("all guests together", self._under_way.total(), MOST_CHECKS_OF_ALL),
        ):
            if number >= most:
                text = f"{who} may have {most} feasibility checks under way: wait for the answer to one of them"
                raise RpcError(errno.EAGAIN, text)

    def _done(self, msg: Message) -> None:
        msg.forget_body()
        self._under_way[msg.userid] -= 1
        if not self._under_way[msg.userid]:
            del self._under_way[msg.userid]

    def _schedule_next(self, seconds: float) -> None:
        if self._waiting and not self._scheduled and not self._pid:
            self._scheduled = True
            self._ctx.call_later(seconds, self._next)

    def _next(self) -> None:
        self._scheduled = False
        if self._busy():
            self._schedule_next(_RETRY_AFTER)
        elif self._waiting:
            msg, answer = self._waiting.popleft()
            try:
                if self._apart:
                    self._fork(msg, answer)
                else:
                    answer.set_result(self._check(msg))
            except Exception as exc:
                answer.set_exception(exc)
            self._schedule_next(0.0)

    def _fork(self, msg: Message, answer: asyncio.Future[Any]) -> None:
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError as exc:
            os.close(reader)
            os.close(writer)
            raise RpcError(exc.errno or errno.EAGAIN, f"cannot start a process for the check: {exc.strerror}") from None
        if not pid:
            _answer_in_fork(writer, self._check, msg)
        os.close(writer)
        self._pid, self._sender = pid, msg.sender
        output = bytearray()

        def read() -> None:
            data = os.read(reader, 1 << 16)
            output.extend(data)
            if data:
                return
            self._ctx.loop.remove_reader(reader)
            os.close(reader)
            self._pid = 0
            status = os.waitpid(pid, 0)[1]
            if not answer.done():
                _finish(answer, bytes(output), status)
            self._schedule_next(0.0)

        self._ctx.loop.add_reader(reader, read)

    def _disconnected(self, sender: str) -> None:
        for msg, answer in self._waiting:
            if msg.sender == sender:
                answer.cancel()
        self._waiting = deque(entry for entry in self._waiting if not entry[1].done())
        if self._sender == sender:
            self._kill()

    def _kill(self) -> None:
        if self._pid:
            # The fork has not been reaped, so its pid cannot belong to another process.
            os.kill(self._pid, signal.SIGKILL)


def _finish(answer: asyncio.Future[Any], output: bytes, status: int) -> None:
    """Set the result from the output of the fork, which is empty if the fork was killed."""
    if output:
        errnum, text = msgspec.json.decode(output)
    elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        errnum, text = errno.E2BIG, f"the check was ended after {MOST_SECONDS} s of processor time"
    else:
        errnum, text = errno.EAGAIN, "the check was ended"
    if errnum:
        answer.set_exception(RpcError(errnum, text))
    else:
        answer.set_result(EMPTY)


def _answer_in_fork(writer: int, check: Callable[[Message], Any], msg: Message) -> NoReturn:
    """Write the errno and the text of the answer, and exit."""
    try:
        # A garbage collection would copy every page that the fork shares with the scheduler.
        gc.disable()
        os.nice(10)
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[0])
        memory = pages * os.sysconf("SC_PAGESIZE") + _MOST_MEMORY
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))
        try:
            check(msg)
            answer = (0, "")
        except RpcError as exc:
            answer = (exc.errnum, exc.text)
        except MemoryError:
            answer = (errno.E2BIG, f"the check takes more than {_MOST_MEMORY >> 20} MiB of memory")
        os.write(writer, msgspec.json.encode((answer[0], answer[1][:_LONGEST])))
    finally:
        os._exit(0)


def _refuse_large(jobspec: dict[str, Any]) -> None:
    """Raise RpcError(E2BIG) for a jobspec whose check would take long."""
    try:
        wanted = js.constraints(jobspec)
        size = constraint.size(wanted)
        length = len(msgspec.json.encode((jobspec.get("resources"), wanted)))
    except (AssertionError, AttributeError):
        # The check itself reports the malformed part.
        return
    for number, most, what in ((length, MOST_BYTES, "bytes"), (size, MOST_SIZE, "operators, values and hosts")):
        if number > most:
            text = f"jobspec: resources and constraint have {number} {what}, those of a guest may have {most}"
            raise RpcError(errno.E2BIG, text)
