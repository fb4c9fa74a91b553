"""A broker that is killed and started again while it is used by `/v2`: what was asked meanwhile is refused or cut off,
what was followed goes on, and no request that is sent again submits a second job.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from instance import FLUX, clean_env, processes_with
from tests.service.conftest import serving

from waiting import until

JOBS = 40


class Restarted:
    """An instance with a state that is kept, at one address, and the service before it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.uri = f"local://{folder}/local"
        self.broker: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        options = f"-Sstatedir={self.folder}/state,-Slocal-uri={self.uri}"
        self.broker = subprocess.Popen(
            [FLUX, "start", f"-o{options}", "sh", "-c", "echo ready; exec cat"],
            env={**clean_env(), "TMPDIR": self.folder, "HR_TEST": self.folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.broker.stdout is not None and self.broker.stdout.readline() == "ready\n"

    def flux(self, *args: str) -> str:
        return subprocess.run(
            [FLUX, *args], env=clean_env(FLUX_URI=self.uri), capture_output=True, text=True, check=True
        ).stdout

    def kill(self) -> None:
        os.kill(int(self.flux("getattr", "broker.pid")), signal.SIGKILL)
        assert self.broker is not None and self.broker.stdin is not None
        self.broker.stdin.close()
        self.broker.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/local")

    def close(self) -> None:
        assert self.broker is not None and self.broker.stdin is not None
        self.broker.stdin.close()
        self.broker.wait()


@pytest.fixture
def instance() -> Iterator[Restarted]:
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    os.mkdir(f"{folder}/state")
    found = Restarted(folder)
    yield found
    found.close()
    until(lambda: not processes_with(f"HR_TEST={folder}"))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(instance: Restarted) -> Iterator[str]:
    with serving(instance.uri) as process:
        yield process.url


def submit(url: str, number: int) -> int:
    """The status of a submission, the same for each time that it is sent."""
    body = json.dumps({"command": "true", "name": f"job{number}", "urgency": 0}).encode()
    headers = {"Idempotency-Key": f"key{number}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v2/jobs", body, headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        exc.close()
        return exc.code


def follow(url: str, path: str, last: int = 0) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", f"/v2/{path}", headers={"Last-Event-ID": str(last)} if last else {})
    return connection.getresponse()


def ids(answer: http.client.HTTPResponse) -> Iterator[int]:
    """The ids of events as they come. Raises IncompleteRead, which reading by lines does not."""
    line = b""
    while byte := answer.read(1):
        line += byte
        if byte == b"\n":
            if line.startswith(b"id: "):
                yield int(line[4:])
            line = b""


def test_a_broker_that_is_killed_and_started_again(instance: Restarted, url: str) -> None:
    held = instance.flux("submit", "--urgency=hold", "true").strip().replace("ƒ", "f")
    followed = follow(url, f"jobs/{held}/events")
    seen = next(ids(followed))
    statuses: list[int] = []

    def submit_some(first: int) -> None:
        for number in range(first, JOBS, 4):
            status = submit(url, number)
            while status != 201:
                statuses.append(status)
                status = submit(url, number)

    threads = [threading.Thread(target=submit_some, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(instance.flux("jobs", "-n").splitlines()) > 4)
    instance.kill()
    with pytest.raises(http.client.IncompleteRead):
        for number in ids(followed):
            seen = number
    until(lambda: submit(url, JOBS) == 503)
    instance.start()
    for thread in threads:
        thread.join()
    names = instance.flux("jobs", "-n", "-c", "0", "-o", "{name}").split()
    assert sorted(name for name in names if name != f"job{JOBS}" and name.startswith("job")) == sorted(
        f"job{number}" for number in range(JOBS)
    )
    assert set(statuses) <= {503}
    # The events go on after the last that was seen.
    instance.flux("cancel", held)
    assert next(ids(follow(url, f"jobs/{held}/events", seen))) == seen + 1
    instance.flux("cancel", "--all")
