"""A job's folder, as other processes see it: whether its runner runs, and what it has written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.formats.spec.eventlog import Event, encode
from headrace.kubeflow.folder import EVENTLOG, LOCK, LOG, Folder, end
from waiting import until

CLEAN = Event(2.0, "clean")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def write(folder: Folder, name: str, text: str) -> None:
    with open(folder / name, "a", encoding="utf-8") as file:
        file.write(text)


@pytest.fixture
def runner(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock, as the runner does, and ignores the first SIGTERM."""
    lock = folder.lock()
    text = "import os, signal, sys; os.pwrite(int(sys.argv[1]), str(os.getpid()).encode(), 0); signal.sigwait([15])"
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15])\n"
    command = [sys.executable, "-c", block + text, str(lock)]
    with subprocess.Popen(command, pass_fds=(lock,)) as process:
        os.close(lock)
        yield process
        process.kill()


def test_the_lock_tells_whether_the_runner_runs(folder: Folder, runner: subprocess.Popen[bytes]) -> None:
    assert folder.runs
    with pytest.raises(BlockingIOError):
        folder.lock()
    runner.kill()
    runner.wait()
    assert not folder.runs
    os.close(folder.lock())


def test_without_a_lock_nothing_runs(folder: Folder) -> None:
    assert not folder.runs
    assert folder.ask_to_end() and folder.has_ended()
    end([folder])


def test_a_runner_is_asked_once_and_waited_for(folder: Folder, runner: subprocess.Popen[bytes]) -> None:
    end([folder])
    assert runner.wait() == 0 and not folder.runs


def test_a_runner_without_an_id_yet_is_asked_when_it_has_one(folder: Folder) -> None:
    lock = folder.lock()
    assert folder.runs and not folder.ask_to_end()
    with subprocess.Popen(["sleep", "1000"]) as process:
        os.pwrite(lock, str(process.pid).encode(), 0)
        assert folder.ask_to_end()
        assert process.wait() == -signal.SIGTERM
    os.close(lock)


def test_events_are_whole_lines(folder: Folder) -> None:
    assert list(folder.read(EVENTLOG)) == []
    write(folder, EVENTLOG, encode(Event(1.0, "submit", {"note": "\u2028 ü"})) + '{"timestamp": 2.0, "na')
    assert list(folder.read(EVENTLOG)) == [Event(1.0, "submit", {"note": "\u2028 ü"})]
    write(folder, EVENTLOG, 'me": "clean"}\n')
    assert list(folder.read(EVENTLOG))[1:] == [CLEAN]


def test_a_long_log_is_read_in_pieces(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.kubeflow.folder._PIECE", 100)
    events = [Event(float(at), "data", {"data": "x" * at}) for at in range(1, 300, 7)]
    write(folder, "output", "".join(map(encode, events)))
    assert list(folder.read("output")) == events


def test_a_log_is_followed_to_the_end_of_the_job(folder: Folder, runner: subprocess.Popen[bytes]) -> None:
    write(folder, "output", encode(Event(1.0, "a")))
    events = folder.read("output", follow=True)
    assert next(events) == Event(1.0, "a")
    write(folder, "output", encode(Event(1.0, "b")) + encode(Event(1.0, "c")))
    assert [next(events), next(events)] == [Event(1.0, "b"), Event(1.0, "c")]
    write(folder, "output", encode(Event(1.0, "d")))
    write(folder, EVENTLOG, encode(CLEAN))
    assert list(events) == [Event(1.0, "d")]
    assert folder.runs


def test_a_log_is_followed_to_the_end_of_the_runner(folder: Folder, runner: subprocess.Popen[bytes]) -> None:
    write(folder, "output", encode(Event(1.0, "a")))
    events = folder.read("output", follow=True)
    assert next(events) == Event(1.0, "a")
    runner.kill()
    runner.wait()
    assert list(events) == []


def test_a_job_is_lost_if_its_runner_has_ended_before_it(folder: Folder, runner: subprocess.Popen[bytes]) -> None:
    until(lambda: os.path.getsize(folder / LOCK))
    assert folder.lost() == ""
    runner.kill()
    runner.wait()
    assert folder.lost() == "its brokers have ended"
    write(folder, LOG, "starting\n\nno memory\n\n")
    assert folder.lost() == "its brokers have ended: no memory"
    write(folder, EVENTLOG, encode(CLEAN))
    assert folder.lost() == ""
