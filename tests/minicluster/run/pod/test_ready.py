"""The port that readiness probes ask: requests wait for the first broker, and are answered at once from then on."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from headrace.minicluster.run.pod.ready import ReadyPort

PROBE = b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n"


class Runner:
    """What a runner gives the port: one poll."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.readers: dict[int, Callable[[], None]] = {}
        self.ready = ReadyPort(self.port, self.readers.__setitem__, self.readers.__delitem__)
        self.ready.open()

    def turn(self) -> None:
        """Serve what has come."""
        while found := select.select(list(self.readers), [], [], 0)[0]:
            for fd in found:
                if fd in self.readers:
                    self.readers[fd]()

    def probe(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.sendall(PROBE)
        self.turn()
        connection.setblocking(False)
        return connection


@pytest.fixture
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    for fd in made.readers:
        os.close(fd)


def status(connection: socket.socket) -> int:
    """Of the answer that has come; 0 while none has, -1 where the connection was closed without one."""
    with connection:
        try:
            answer = connection.recv(4096)
        except BlockingIOError:
            return 0
        assert not answer or (answer.endswith(b"\r\n\r\n") and connection.recv(1) == b"")
        return int(answer.split()[1]) if answer else -1


def test_a_request_waits_until_the_broker_is_up(runner: Runner) -> None:
    first, second = runner.probe(), runner.probe()
    runner.ready.answer_probes(False)
    assert status(first) == 0
    runner.ready.answer_probes(True)
    assert status(second) == 200


def test_answers_follow_the_broker_at_once_from_then_on(runner: Runner) -> None:
    found = []
    for up in (True, False, True):
        runner.ready.answer_probes(up)
        found.append(status(runner.probe()))
    assert found == [200, 503, 200]


def test_a_request_that_is_given_up_leaves_nothing(runner: Runner) -> None:
    runner.probe().close()
    runner.turn()
    assert len(runner.readers) == 1
    runner.ready.answer_probes(True)


def test_connections_that_ask_nothing_are_closed_for_others(runner: Runner) -> None:
    silent = []
    for _ in range(40):
        silent.append(socket.create_connection(("127.0.0.1", runner.port), 60))
        runner.turn()
    last = runner.probe()
    runner.ready.answer_probes(True)
    assert status(last) == 200
    assert len(runner.readers) <= 17
    for one in silent:
        one.close()


def test_a_fork_does_not_keep_the_port(runner: Runner) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(sum(os.path.exists(f"/proc/self/fd/{fd}") for fd in runner.readers))
    assert os.waitpid(pid, 0)[1] == 0
