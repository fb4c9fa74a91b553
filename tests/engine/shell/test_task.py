"""A task by itself: a real process with pipes and a PMI socket; its job and its agent are played by the test."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.shell.task import Task
from waiting import PATIENCE


class Agent:
    """A loop over descriptors and children, as `Host` of the shell has it."""

    def __init__(self) -> None:
        self.children: dict[int, Callable[[int], None]] = {}
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def unwatch(self, fd: int) -> None:
        self._selector.unregister(fd)

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_WRITE, on_writable)

    unwatch_writable = unwatch

    def turn(self) -> None:
        for key, _ in self._selector.select(0.01):
            key.data()
        for pid in list(self.children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.children.pop(pid)(status)

    def until(self, done: Callable[[], object]) -> None:
        limit = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < limit
            self.turn()


class World:
    """A job of one task; `closed` and `statuses` are what the task has told it."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.size = 1
        self.pmi = SimpleNamespace(simple=None, pmix=None)
        self.got = {"stdout": b"", "stderr": b""}
        self.ended: list[str] = []
        self.statuses: list[int] = []
        self.closed: list[Task] = []
        self.output: Any = SimpleNamespace(data=self._data, eof=lambda _rank, stream: self.ended.append(stream))
        self.task = Task(self, 0, 0)  # type: ignore[arg-type]

    def _data(self, _rank: int, stream: str, data: bytes) -> None:
        self.got[stream] += data

    def input_taken(self) -> None:
        pass

    def task_exited(self, _task: Task, status: int) -> None:
        self.statuses.append(status)

    def task_closed(self, task: Task) -> None:
        self.closed.append(task)

    def start(self, script: str, stdin: int = -1) -> None:
        self.task.start(["/bin/sh", "-c", script], dict(os.environ), {}, stdin, False)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.task.kill(signal.SIGKILL)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_what_a_task_prints_comes_by_stream_and_it_closes_when_all_has_ended(world: World) -> None:
    world.start("echo out; echo err >&2; exit 3")
    world.agent.until(lambda: world.closed)
    assert world.got == {"stdout": b"out\n", "stderr": b"err\n"}
    assert sorted(world.ended) == ["stderr", "stdout"]
    assert [os.waitstatus_to_exitcode(status) for status in world.statuses] == [3]
    assert world.closed == [world.task] and world.task.closed


def test_a_program_that_does_not_exist_leaves_no_descriptor_open(world: World) -> None:
    world.agent.turn()
    before = descriptors()
    with pytest.raises(OSError):
        world.task.start(["/nonexistent/program"], {}, {}, -1, False)
    assert descriptors() == before
    world.task.never_ran()
    assert (world.task.pid, world.task.closed) == (0, True)


def test_all_descriptors_are_closed_with_the_task(world: World) -> None:
    world.agent.turn()
    before = descriptors()
    world.start("cat")
    assert world.task.feed is not None
    world.task.feed.write(b"typed")
    world.task.feed.end()
    world.agent.until(lambda: world.closed)
    assert world.got["stdout"] == b"typed"
    assert descriptors() == before


def test_a_file_can_be_its_input(world: World, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text("from a file\n")
    world.start("cat", os.open(file, os.O_RDONLY | os.O_CLOEXEC))
    assert world.task.feed is None
    world.agent.until(lambda: world.closed)
    assert world.got["stdout"] == b"from a file\n"


def test_a_background_process_keeps_the_task_open_until_its_streams_are_closed(world: World, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    world.start(f"sleep 1000 & echo $! > {pid}.part; mv {pid}.part {pid}")
    world.agent.until(lambda: world.statuses and pid.exists())
    assert not world.closed
    left = int(pid.read_text())
    os.kill(left, 0)
    world.task.close_streams()
    assert world.closed == [world.task]

    def is_gone() -> bool:
        # An orphan that nobody has collected yet counts as gone.
        try:
            return Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    world.agent.until(is_gone)


def test_a_signal_reaches_what_the_task_has_left_in_its_group(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    world.start(f"(trap 'echo told; exit' TERM; : > {mark}; while :; do sleep 0.05; done) & exit 0")
    world.agent.until(lambda: world.statuses and mark.exists())
    world.task.kill(signal.SIGTERM)
    world.agent.until(lambda: world.closed)
    assert world.got["stdout"] == b"told\n"


def test_a_task_on_hold_is_not_read_and_loses_nothing(world: World) -> None:
    world.start("i=0; while [ $i -lt 40000 ]; do echo 0123456789; i=$((i+1)); done")
    world.task.pause_output(True)
    world.task.pause_output(True)
    for _ in range(20):
        world.agent.turn()
    assert world.got["stdout"] == b"" and not world.statuses
    world.task.pause_output(False)
    world.agent.until(lambda: world.closed)
    assert world.got["stdout"] == b"0123456789\n" * 40000


def test_pmi_lines_are_passed_on_and_answered(world: World) -> None:
    asked: list[tuple[str, int]] = []

    def line(text: str, local: int, reply: Callable[[bytes], None]) -> None:
        asked.append((text, local))
        reply(b"cmd=answer\n")

    world.pmi.simple = SimpleNamespace(line=line)
    world.start('echo "cmd=question rank=$PMI_RANK size=$PMI_SIZE" >&$PMI_FD; read answer <&$PMI_FD; echo "$answer"')
    world.agent.until(lambda: world.closed)
    assert asked == [("cmd=question rank=0 size=1", 0)]
    assert world.got["stdout"] == b"cmd=answer\n"


def test_a_pmi_line_without_end_closes_the_socket_and_not_the_task(world: World) -> None:
    world.pmi.simple = SimpleNamespace(line=lambda *_: pytest.fail("a line without its end"))
    world.start("trap '' PIPE; head -c 300000 /dev/zero >&$PMI_FD 2>/dev/null; echo on")
    world.agent.until(lambda: world.closed)
    assert world.got["stdout"] == b"on\n"
