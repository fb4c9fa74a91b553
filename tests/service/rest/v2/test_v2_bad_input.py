"""Requests that schemathesis makes up from the OpenAPI document, right and wrong ones, to the real service on a real
broker: each is answered, what is refused with a problem, and only what was answered with 201 is submitted. Streams are
left by their reader after the first bytes. The service keeps no memory and no descriptors of what it has answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from instance import clean_env
from schemathesis import GenerationMode
from tests.service.conftest import Instance, accounted

from headrace.service.rest.v2 import openapi
from sizes import size
from waiting import PATIENCE, until

HEADRACE = str(Path(sys.executable).parent / "headrace")
SCHEMA = schemathesis.openapi.from_dict(openapi.document())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
# Requests of an operation in each mode.
EXAMPLES = max(5, size("api_requests") // len(OPERATIONS) // 2)
PROBLEM = {"type", "title", "status", "detail", "field", "errno"}
# Some of the ids are those of jobs, and some of the names those of a bank and its user.
_KNOWN = 2
NAMES = {"bank": "plants", "user": "bob.x"}
# Bytes: the resident memory of a process rises in steps until it has settled; and what may be kept of a request, which
# is less than the smallest object.
STEP, OF_REQUEST = 6 << 20, 24
# What may be kept of a job that was submitted with a key: the entry of its key.
OF_JOB = 2000


class Service:
    """The service, and how often it has answered how."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self.url = url
        self.descriptors = self.open_descriptors()
        self.session = requests.Session()
        self.answers: Counter[int] = Counter()
        self.jobs: list[str] = []

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self) -> int:
        """Bytes that it has resident."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def send(self, case: Any) -> None:
        number = self.answers.total()
        if "jobid" in case.path_parameters and self.jobs and number % _KNOWN:
            case.path_parameters["jobid"] = self.jobs[number % len(self.jobs)]
        for name, known in NAMES.items():
            if name in case.path_parameters and number % _KNOWN:
                case.path_parameters[name] = known
        call = case.as_transport_kwargs(base_url=self.url)
        if call["method"] == "POST" and call["url"].endswith("/v2/jobs") and isinstance(call.get("json"), dict):
            self.submit_twice(call, number)
        else:
            self.ask(call)

    def submit_twice(self, call: dict[str, Any], number: int) -> None:
        """A submission, some with no more than one wrong field, is one job, also if its reader was away at first."""
        if number % 4 and not call["json"].keys() & {"jobspec", "script"}:
            kept = sorted(call["json"])[number % max(1, len(call["json"])) :][: number % 3]
            call["json"] = {"command": "true", **{name: call["json"][name] for name in kept}}
        call["headers"] = {**(call.get("headers") or {}), "Idempotency-Key": f"key {number}"}
        first, again = self.ask(call), self.ask(call)
        assert first == again, call

    def ask(self, call: dict[str, Any]) -> str | None:
        """Returns the id of a job that was submitted."""
        try:
            answer = self.session.request(**call, stream=True, timeout=PATIENCE, allow_redirects=False)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            # The client does not send it.
            return None
        with answer:
            self.answers[answer.status_code] += 1
            assert answer.status_code < 500, (call, answer.text)
            kind = answer.headers.get("content-type", "")
            if answer.status_code >= 400 and kind != "text/plain; charset=utf-8":
                assert kind == "application/problem+json" and answer.json().keys() >= PROBLEM, (call, answer.text)
            elif answer.headers.get("location", "").startswith("/v2/jobs/"):
                id: str = answer.json()["id"]
                self.jobs.append(id)
                return id
        return None


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with accounted(tmp_path_factory.mktemp("accounted")) as found:
        yield found


@pytest.fixture(scope="module")
def service(own: Instance, tmp_path_factory: pytest.TempPathFactory) -> Any:
    # What is made up is not run.
    own.flux("queue", "stop", "--quiet")
    argv = [HEADRACE, "api", "start", "--port", "0", "--json", "--auth", "none"]
    env = clean_env(FLUX_URI=own.uri)
    said = tmp_path_factory.mktemp("service") / "stderr"
    with said.open("w") as err, subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=err, text=True, cwd="/"
    ) as process:
        assert process.stdout is not None
        found = Service(process.pid, json.loads(process.stdout.readline())["url"])
        yield found
        found.session.close()
        # Its connection to the broker, the journal that readers of the news share, and what Python opens when it needs
        # it.
        until(lambda: found.open_descriptors() <= found.descriptors + 5)
        listed = own.flux("jobs", "-a", "-n", "-c", "0", "-o", "{id.f58plain}").split()
        process.terminate()
        assert process.wait() == 0
        assert "Traceback" not in said.read_text()
    own.flux("cancel", "--all")
    assert sorted(listed) == sorted(set(found.jobs)) and found.answers[200] and found.answers[422]


@pytest.mark.soak
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_whatever_is_asked_is_answered(service: Service, operation: Any, mode: Any) -> None:
    sizes: list[tuple[int, int]] = []
    number = 0

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal number
        service.send(case)
        number += 1
        if number >= EXAMPLES // 5:
            sizes.append((service.memory(), len(service.jobs)))

    # An operation without parameters has no wrong request.
    with contextlib.suppress(Unsatisfiable):
        ask()
    if sizes:
        tenth = max(1, len(sizes) // 10)
        (begin, jobs), (end, more) = min(sizes[:tenth]), min(sizes[-tenth:])
        print(f"{operation.label}, {mode.value}: {number} requests, memory {begin >> 10} KiB, then {end >> 10} KiB")
        assert end - begin <= STEP + OF_REQUEST * number + OF_JOB * (more - jobs)
