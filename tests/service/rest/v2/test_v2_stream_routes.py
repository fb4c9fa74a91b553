"""Output and events that are followed by `/v2`, on a real broker; the service is a process of its own."""

from __future__ import annotations

import functools
import http.client
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import ServiceProcess, serving

from waiting import until


class Service(ServiceProcess):
    def get(self, path: str, **headers: str) -> Any:
        call = urllib.request.Request(
            f"{self.url}/v2/{path}", headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        with urllib.request.urlopen(call) as answer:
            return answer.read()

    def job(self, id: str) -> Any:
        return json.loads(self.get(f"jobs/{id}"))

    def submit(self, command: str, **given: Any) -> str:
        body = json.dumps({"command": ["sh", "-c", command], **given}).encode()
        with urllib.request.urlopen(f"{self.url}/v2/jobs", body) as answer:
            return str(json.load(answer)["id"])

    def ended(self, command: str) -> str:
        id = self.submit(command)
        until(lambda: self.job(id)["state"] == "INACTIVE")
        return id

    def open(self, path: str, **headers: str) -> http.client.HTTPResponse:
        return super().open(f"/v2/{path}", **headers)


def events(answer: http.client.HTTPResponse, count: int = 1 << 30) -> list[dict[str, str]]:
    """So many server-sent events, or all."""
    found: list[dict[str, str]] = []
    one: dict[str, str] = {}
    while len(found) < count and (line := answer.readline()):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            one[name] = value
        else:
            found.append(one)
            one = {}
    return found


def status(call: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call()
    found = caught.value.code
    caught.value.close()
    return found


@pytest.fixture(scope="module")
def service(modules_own: Any) -> Iterator[Service]:
    with serving(modules_own.uri) as process:
        yield Service(*process)


def test_output_by_stream_offset_and_range(service: Service) -> None:
    id = service.ended("printf 0123456789; printf error >&2")
    path = f"jobs/{id}/output?stream=stdout"
    assert service.get(path) == b"0123456789" and service.get(f"jobs/{id}/output?stream=stderr") == b"error"
    assert sorted(service.get(f"jobs/{id}/output")) == sorted(b"0123456789error")
    assert service.get(f"{path}&offset=4") == b"456789" and service.get(f"{path}&offset=99") == b""
    assert service.get(f"{path}&offset=4&follow=true") == b"456789"
    for text, found in (("2-4", b"234"), ("7-", b"789"), ("-3", b"789"), ("5-99", b"56789"), ("-99", b"0123456789")):
        answer = service.open(path, Range=f"bytes={text}")
        assert (answer.status, answer.read()) == (206, found)
        assert answer.headers["content-range"].endswith("/10")
    assert status(lambda: service.get(path, Range="bytes=10-")) == 416
    # What is no range of bytes is ignored (RFC 9110).
    for text in ("lines=1-2", "bytes=-", "bytes=1-2,4-5", "bytes=x-"):
        assert service.get(path, Range=text) == b"0123456789"


@pytest.mark.parametrize("query", ["stream=stdin", "offset=-1", "offset=x", "follow=maybe", "what=1"])
def test_what_is_wrong_with_a_request_for_output(service: Service, query: str) -> None:
    assert status(lambda: service.get(f"jobs/f1/output?{query}")) == 422


def test_a_job_without_output_and_a_job_that_is_not_there(service: Service) -> None:
    held = service.submit("true", urgency=0)
    assert service.get(f"jobs/{held}/output") == b""
    for path in ("output", "output?follow=true", "events"):
        assert status(lambda path=path: service.get(f"jobs/f1/{path}")) == 404  # type: ignore[misc]


def test_output_is_followed_by_many_as_it_is_written(service: Service, tmp_path: Path) -> None:
    go = tmp_path / "go"
    id = service.submit(f"echo one; until test -e {go}; do sleep .05; done; echo two")
    readers = [service.open(f"jobs/{id}/output?follow=true") for _ in range(20)]
    assert all(reader.read(4) == b"one\n" for reader in readers)
    go.touch()
    late = service.open(f"jobs/{id}/output?follow=true&offset=4")
    assert all(reader.read() == b"two\n" for reader in (*readers, late))


def test_slow_readers_get_all_and_hold_up_no_others(service: Service) -> None:
    size = 20_000_000
    id = service.submit(f"yes 0123456 | head -c {size}")
    slow = [service.open(f"jobs/{id}/output?follow=true") for _ in range(3)]
    assert all(reader.read(8) == b"0123456\n" for reader in slow)
    quick = service.open(f"jobs/{id}/output?follow=true")
    assert len(quick.read()) == size
    for reader in slow:
        got = reader.read()
        assert len(got) == size - 8 and not got.strip(b"0123456\n")


def test_events_of_a_job_go_on_where_they_were(service: Service) -> None:
    id = service.ended("true")
    whole = events(service.open(f"jobs/{id}/events"))
    assert [json.loads(one["data"]) for one in whole] == json.loads(service.get(f"jobs/{id}/eventlog"))["events"]
    assert [one["id"] for one in whole] == [str(number) for number in range(1, len(whole) + 1)]
    for number in (1, 3, len(whole) - 1):
        assert events(service.open(f"jobs/{id}/events", Last_Event_ID=str(number))) == whole[number:]
    assert service.open(f"jobs/{id}/events", Last_Event_ID=str(len(whole))).status == 204


def test_news_of_all_jobs_go_on_where_they_were(service: Service) -> None:
    followed = service.open("events")
    assert [one["event"] for one in events(followed, 1)] == ["begin"]
    id = service.ended("true")
    found = []
    while not found or json.loads(found[-1]["data"])["name"] != "clean":
        found += events(followed, 1)
    assert {json.loads(one["data"])["id"] for one in found} == {id}
    again = service.open("events", Last_Event_ID=found[2]["id"])
    assert events(again, len(found) - 3) == found[3:]
    followed.close()
    for last in ("nosuch.1", found[0]["id"].partition(".")[0] + ".999999", "x"):
        assert events(service.open("events", Last_Event_ID=last), 1)[0]["event"] == "begin"


def test_a_user_may_follow_so_many_streams(service: Service) -> None:
    id = service.submit("sleep 1000")
    readers: list[http.client.HTTPResponse] = []

    def full() -> bool:
        readers.append(service.open(f"jobs/{id}/events"))
        return readers[-1].status == 429

    until(full)
    assert readers[-1].headers["content-type"] == "application/problem+json" and len(readers) <= 65
    for reader in readers:
        reader.close()
    until(lambda: service.open(f"jobs/{id}/events").status == 200)
    urllib.request.urlopen(f"{service.url}/v2/jobs/{id}/cancel", b"{}").close()


def test_a_stream_whose_broker_is_lost_is_cut_off(instance: Any) -> None:
    with serving(instance.uri) as process:
        service = Service(*process)
        id = service.submit("echo one; sleep 1000")
        followed = [service.open(f"jobs/{id}/output?follow=true"), service.open("events")]
        assert followed[0].read(4) == b"one\n" and events(followed[1], 1)
        instance.stopped = True
        os.kill(int(instance.flux("getattr", "broker.pid")), signal.SIGKILL)
        for one in followed:
            with pytest.raises(http.client.IncompleteRead):
                while one.read(1):
                    pass
        assert status(functools.partial(service.get, "events")) == 503
