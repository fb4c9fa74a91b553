"""The shells of guests' jobs, as the agent of root has them: what such a process may say, and how it may end.

The process is a stand-in that says what the test has it say, as a user could who has taken over the own shell.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.engine.agent import guests
from headrace.engine.agent.protocol import frame
from headrace.engine.process.spawn import spawn
from headrace.formats.spec import jobspec_build
from waiting import until

JOB = 1 << 24
UID = 61001
# Says what is in a file, then waits for the end of its input, or does as told.
STAND_IN = """
import os, signal, sys
data = open(sys.argv[1], "rb").read()
while data:
    data = data[os.write(3, data):]
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
while os.read(3, 65536):
    pass
"""


class Host:
    """The agent's loop, as far as guests use it."""

    def __init__(self) -> None:
        self.children: dict[int, Callable[[int], None]] = {}
        self.told: list[Any] = []
        self.readers: dict[int, Callable[[], None]] = {}
        self.guests = guests.Guests(self, lambda: None)  # type: ignore[arg-type]

    def send(self, op: Any) -> None:
        self.told.append(op)

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self.readers[fd] = on_readable

    def unwatch(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None:
        raise AssertionError("a start fits into the socket")

    def unwatch_writable(self, fd: int) -> None:
        pass

    def after(self, seconds: float, fn: Callable[[], None]) -> None:
        pass

    def turn(self) -> None:
        ready, _, _ = select.select(list(self.readers), [], [], 0.01)
        for fd in ready:
            if fd in self.readers:
                self.readers[fd]()
        for pid in list(self.children):
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                self.guests.continue_shell(pid)
            elif found:
                self.children.pop(pid)(status)


@pytest.fixture
def rundir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def ran(
    rundir: Path, monkeypatch: pytest.MonkeyPatch, said: bytes, then: str = "wait", nodeid: int = 0, requests: int = 0
) -> list[Any]:
    """What the broker is told of a job whose shell says `said`."""
    file = rundir / "said"
    file.write_bytes(said)

    def stand_in(_argv: list[str], env: dict[str, str], fds: Any, session: bool) -> int:
        return spawn([sys.executable, "-c", STAND_IN, str(file), then], env, fds)

    monkeypatch.setattr(guests, "spawn", stand_in)
    monkeypatch.setattr(os, "chown", lambda *_args, **_more: None)
    host = Host()
    start: Any = {
        "op": "start",
        "id": JOB,
        "userid": UID,
        "nodeid": nodeid,
        "hosts": ["host0", "host1"],
        "rundir": str(rundir),
        "jobspec": jobspec_build.from_command(["true"], environment={}),
    }
    host.guests.start(start)
    for token in range(1, requests + 1):
        rpc: Any = {"op": "rpc", "id": JOB, "token": token, "streaming": False, "method": "x", "payload": {}}
        assert host.guests.pass_on(rpc)
    assert not host.guests.pass_on({"op": "kill", "id": JOB + 1, "signum": 9})
    assert list(rundir.glob(f"jobtmp-{nodeid}-*"))

    def over() -> bool:
        host.turn()
        return not host.children

    until(over)
    assert not list(rundir.glob("jobtmp-*")) and host.readers == {}
    return host.told


FINISH = {"op": "finish", "id": JOB, "status": 256}


def test_reports_of_the_own_job_are_passed_on_and_its_end_when_the_process_has_ended(
    rundir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Any] = [
        {"op": "started", "id": JOB},
        {"op": "event", "id": JOB, "t": 1.5, "name": "shell.init", "context": None},
        {"op": "output", "id": JOB, "entries": [[1.5, "data", {"stream": "stdout", "rank": "0", "data": "é"}]]},
        {"op": "barrier", "id": JOB, "seq": 0, "kvs": {"a": "b"}},
        {"op": "peer", "id": JOB, "to": 1, "data": {"kind": "done"}},
        {"op": "exception", "id": JOB, "severity": 1, "type": "exec", "note": "x"},
        {"op": "rpc-reply", "token": 1, "errnum": 0, "payload": None, "text": ""},
    ]
    # After its end the job has no reports.
    late = {"op": "started", "id": JOB}
    told = ran(rundir, monkeypatch, frame([*reports, FINISH, late]), requests=1)
    assert told == [*reports, FINISH]
    # Fields that no report has are left out.
    told = ran(rundir, monkeypatch, frame([{**reports[0], "x": 1}, {**FINISH, "bad": [[0, 1]]}]))
    assert told == [reports[0], FINISH]


HOSTILE: list[Any] = [
    {"op": "started", "id": JOB + 1},
    {"op": "finish", "id": JOB + 1, "status": 0},
    {"op": "finish", "id": JOB, "status": -1},
    {"op": "finish", "id": JOB, "status": "0"},
    {"op": "output", "id": JOB, "entries": [[1.0, "data"]]},
    {"op": "output", "id": JOB, "entries": [["x", "data", {}]]},
    {"op": "output", "id": JOB, "entries": [[1.0, "data", {"data": 1}]]},
    {"op": "event", "id": JOB, "t": float("nan"), "name": "x"},
    {"op": "event", "id": JOB, "t": 1.0, "name": "x", "context": {"a": b"bytes"}},
    {"op": "event", "id": JOB, "t": 1.0, "name": "x", "context": {1: 2}},
    {"op": "event", "id": JOB, "t": 1.0, "name": "x", "context": {"a": msgspec.msgpack.Ext(1, b"x")}},
    {"op": "event", "id": JOB, "t": 1.0, "name": "x", "context": msgspec.json.decode('{"a":' * 99 + "1" + "}" * 99)},
    {"op": "exception", "id": JOB, "severity": 9, "type": "exec", "note": "x"},
    {"op": "rpc-reply", "token": 2, "errnum": 0, "payload": {}, "text": ""},
    {"op": "exec-started", "handle": 1, "pid": 1},
    {"op": "gone"},
    {"op": "hello", "pid": 1},
    {"op": ["x"]},
    {"id": JOB},
]


@pytest.mark.parametrize("op", HOSTILE, ids=range(len(HOSTILE)))
def test_a_shell_that_says_what_it_may_not_is_killed_and_its_job_ends(
    rundir: Path, monkeypatch: pytest.MonkeyPatch, op: dict[str, Any]
) -> None:
    exception, finish = ran(rundir, monkeypatch, frame([op]), requests=1)
    assert (exception["op"], exception["severity"], exception["type"]) == ("exception", 0, "exec")
    assert exception["note"].startswith(f"the shell of user {UID} does not keep to the protocol: ")
    assert finish == FINISH


@pytest.mark.parametrize("said", [b"\x01\x00\x00\x00\xc1", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\x01"])
def test_what_is_no_frame_is_the_end_too(rundir: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    exception, finish = ran(rundir, monkeypatch, said)
    assert "does not keep to the protocol" in exception["note"] and finish == FINISH


def test_a_shell_that_is_killed_ends_the_job_or_is_lost_to_the_lead(
    rundir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exception, finish = ran(rundir, monkeypatch, b"", "kill")
    assert exception["note"] == "shell rank 0 (on host0): Killed"
    assert finish == {**FINISH, "status": int(signal.SIGKILL)}
    lost, finish = ran(rundir, monkeypatch, b"", "kill", nodeid=1)
    assert lost == {"op": "peer", "id": JOB, "to": 0, "data": {"kind": "lost-shell", "signal": signal.SIGKILL}}
    assert finish == {**FINISH, "status": int(signal.SIGKILL)}


def test_a_shell_that_is_stopped_goes_on(rundir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(rundir, monkeypatch, frame([FINISH]), "stop") == [FINISH]


def test_a_shell_that_cannot_become_the_user_says_why(rundir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exception, done, finish = ran(rundir, monkeypatch, frame([{"op": "refused", "note": "why"}]), "kill", nodeid=1)
    assert exception["note"] == "why" and finish == FINISH
    assert done == {"op": "peer", "id": JOB, "to": 0, "data": {"kind": "done"}}
