from __future__ import annotations

import json
import os
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import attach
from headrace.cli.job.attach import Attach, ending
from headrace.formats.spec.message import FLAG_STREAMING, RESPONSE, Message

T0 = 1795224526.0


class ScriptedHandle:
    """A handle whose calls are answered at once from a script: topic or eventlog path to a list of answers."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        from headrace.wire.client.handle import Rpc

        self._rpc_class = Rpc
        self._script = script
        self._ready: list[Any] = []
        self._tags = 0
        self.calls: list[tuple[str, Any, int]] = []

    def fileno(self) -> int:
        import os

        return os.open(os.devnull, os.O_RDONLY)

    def pump(self, timeout: float | None = None) -> bool:
        return False

    def expected(self) -> int:
        return 1

    def mark_ready(self, call: Any) -> None:
        self._ready.append(call)

    def dispatch(self) -> bool:
        ready, self._ready = self._ready, []
        for call in ready:
            call.run_callbacks()
        return bool(ready)

    def rpc(self, topic: str, obj: Any = None, nodeid: int = -1, flags: int = 0) -> Any:
        self._tags += 1
        self.calls.append((topic, obj, nodeid))
        call = self._rpc_class(self, topic, nodeid, self._tags)
        path = obj.get("path", topic) if obj else topic
        for answer in self._script.get(path, [38]):
            if isinstance(answer, int):
                call.done = True
                call.deliver(Message(RESPONSE, topic, None, flags, aux1=answer, aux2=self._tags))
            else:
                call.deliver(Message(RESPONSE, topic, answer, flags, aux2=self._tags))
        return call

    def stream(self, topic: str, obj: Any = None, nodeid: int = -1) -> Any:
        return self.rpc(topic, obj, nodeid, FLAG_STREAMING)


def event(name: str, after: float = 0.0, **context: Any) -> dict[str, str]:
    entry: dict[str, Any] = {"timestamp": T0 + after, "name": name}
    if context:
        entry["context"] = {
            key.replace("_", "-") if key == "leader_rank" else key: value for key, value in context.items()
        }
    return {"event": json.dumps(entry) + "\n"}


def job(*output: dict[str, str], status: int = 0, before_finish: tuple = ()) -> dict[str, list[Any]]:
    return {
        "eventlog": [
            event("submit", userid=0, urgency=16, flags=0, version=1),
            event("start", 0.01),
            *before_finish,
            event("finish", 0.1, status=status),
            event("clean", 0.2),
            61,
        ],
        "guest.exec.eventlog": [event("shell.init", 0.02, service="0-shell-f1", leader_rank=3, size=1), 61],
        "guest.output": [*output, 61],
        "0-shell-f1.stdin": [{}],
    }


def follow(script: dict[str, list[Any]], **options: Any) -> tuple[int, ScriptedHandle]:
    handle = ScriptedHandle(script)
    return Attach(handle, 173, read_only=True, **options).run(), handle


def test_output_goes_where_it_came_from(capfdbinary):
    code, _ = follow(
        job(
            event("data", stream="stdout", rank="0", data="out\n"),
            event("data", stream="stderr", rank="0", data="err\n"),
            event("data", stream="stdout", rank="0", data="/w==", encoding="base64"),
            event("data", stream="stdout", rank="0", eof=True),
        )
    )
    assert code == 0
    assert capfdbinary.readouterr() == (b"out\n\xff", b"err\n")


class LateOutput(ScriptedHandle):
    """Output comes when all else has been answered, and has ended."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        super().__init__({**script, "guest.output": []})
        self._late = list(script["guest.output"])
        self._output: Any = None

    def rpc(self, topic: str, obj: Any = None, nodeid: int = -1, flags: int = 0) -> Any:
        call = super().rpc(topic, obj, nodeid, flags)
        if obj and obj.get("path") == "guest.output":
            self._output = call
        return call

    def dispatch(self) -> bool:
        if super().dispatch():
            return True
        if self._output is None or not self._late:
            return False
        answer = self._late.pop(0)
        ends = isinstance(answer, int)
        self._output.done = ends
        self._output.deliver(
            Message(RESPONSE, "t", None if ends else answer, FLAG_STREAMING, aux1=answer if ends else 0)
        )
        return True


def test_output_that_comes_after_the_jobs_end_is_waited_for(capfdbinary):
    lines = [event("data", stream="stdout", rank=str(rank), data=f"from {rank}\n") for rank in range(4)]
    handle = LateOutput(job(*lines))
    assert Attach(handle, 173, read_only=True).run() == 0
    assert capfdbinary.readouterr().out == b"".join(b"from %d\n" % rank for rank in range(4))


class EndsLate(ScriptedHandle):
    """The job's `finish` comes only once its standard input was refused."""

    def __init__(self) -> None:
        script = job()
        self._rest = script["eventlog"][2:]
        super().__init__({**script, "eventlog": script["eventlog"][:2], "0-shell-f1.stdin": [38]})
        self._log: Any = None
        self.ended = False

    def rpc(self, topic: str, obj: Any = None, nodeid: int = -1, flags: int = 0) -> Any:
        call = super().rpc(topic, obj, nodeid, flags)
        if obj and obj.get("path") == "eventlog":
            self._log = call
        return call

    def dispatch(self) -> bool:
        if super().dispatch():
            return True
        if self.ended or "0-shell-f1.stdin" not in [topic for topic, _, _ in self.calls]:
            return False
        self.ended = True
        for answer in self._rest:
            ends = isinstance(answer, int)
            self._log.done = ends
            self._log.deliver(
                Message(RESPONSE, "t", None if ends else answer, FLAG_STREAMING, aux1=answer if ends else 0)
            )
        return True


@pytest.fixture
def typed():
    """Standard input of this process: a pipe with one line."""
    reader, writer = os.pipe()
    os.write(writer, b"hi\n")
    saved = os.dup(0)
    os.dup2(reader, 0)
    yield
    os.dup2(saved, 0)
    for fd in (reader, writer, saved):
        os.close(fd)


@pytest.mark.usefixtures("typed")
def test_a_job_that_ends_before_its_input_comes_has_not_refused_it():
    handle = EndsLate()
    assert Attach(handle, 173).run() == 0
    assert handle.ended


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize("over", [False, True])
def test_a_job_that_goes_on_without_its_input_has_refused_it(over, monkeypatch):
    monkeypatch.setattr(attach, "_END_KNOWN_AFTER", 0.0)
    script = job()
    ends = script["guest.exec.eventlog"] if over else script["guest.exec.eventlog"][:1]
    handle = ScriptedHandle({**script, "eventlog": script["eventlog"][:2], "guest.exec.eventlog": ends})
    handle._script["0-shell-f1.stdin"] = [38]
    following = Attach(handle, 173)
    if over:
        # Without an end of the job's own log the loop would not stop: the test ends it after the refusal's time.
        following.reactor.add_timer(0.1, following.reactor.stop)
        assert following.run() == 0
    else:
        with pytest.raises(CommandError, match="stdin not accepted by job"):
            following.run()


def test_labels_stand_before_every_line(capfdbinary):
    follow(job(event("data", stream="stdout", rank="0-3", data="a\nb\n")), label=True)
    assert capfdbinary.readouterr().out == b"0-3: a\n0-3: b\n"
    follow(job(event("data", stream="stdout", rank="0", data="10%\r20%\r\n")), label=True)
    assert capfdbinary.readouterr().out == b"0: 10%\r20%\r\n"


def test_redirect_and_shell_messages_are_told(capfd):
    follow(
        job(
            event("redirect", stream="stdout", rank="[0-1]", path="lab.out"),
            event("redirect", stream="stderr", rank="0", path="e.txt"),
            event("log", 0.043, level=4, message="vm: adjusted cores", rank=1),
            event("log", 0.05, level=0, message="it failed", rank=0, component="task-exit"),
            event("log", 0.06, level=5, message="task 0: cpus: 0", rank=0, component="cpu-affinity"),
        )
    )
    assert capfd.readouterr().err == (
        "[0-1]: stdout redirected to lab.out\n"
        "0: stderr redirected to e.txt\n"
        "0.043s: flux-shell[1]:  WARN: vm: adjusted cores\n"
        "0.050s: flux-shell[0]: FATAL: task-exit: it failed\n"
        "0.060s: flux-shell[0]: cpu-affinity: task 0: cpus: 0\n"
    )


def test_failure_of_the_tasks_is_the_exit_status(capfd):
    assert follow(job(status=3 << 8))[0] == 3
    assert capfd.readouterr().err == "flux-job: task(s) exited with exit code 3\n"


def test_exception_is_told_with_its_time(capfd):
    raised = event("exception", 0.061, type="exec", severity=0, note="start failed")
    code, _ = follow(job(status=127 << 8, before_finish=(raised,)))
    assert code == 127
    assert capfd.readouterr().err == (
        "0.061s: job.exception ƒ3z type=exec severity=0 start failed\nflux-job: task(s) exited with exit code 127\n"
    )


def test_job_that_never_starts_ends_with_one(capfd):
    script = {
        "eventlog": [
            event("submit", userid=0),
            event("exception", 0.025, type="alloc", severity=0, note="unsatisfiable"),
            event("clean", 0.03),
            61,
        ],
        "guest.exec.eventlog": [],
    }
    assert follow(script)[0] == 1
    assert capfd.readouterr().err == "0.025s: job.exception ƒ3z type=alloc severity=0 unsatisfiable\n"


def test_events_are_shown_on_request(capfd):
    follow(job(), show_events=True, show_exec=True)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == '0.000s: job.submit {"userid":0,"urgency":16,"flags":0,"version":1}'
    assert '0.020s: exec.shell.init {"service":"0-shell-f1","leader-rank":3,"size":1}' in lines
    assert "0.200s: job.clean" in lines


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (1 << 8, "task(s) exited with exit code 1"),
        (137 << 8, "task(s) Killed"),
        (142 << 8, "task(s) Alarm clock"),
        (15, "job shell Terminated"),
    ],
)
def test_a_wait_status_becomes_words(status, text):
    assert ending(status) == text
