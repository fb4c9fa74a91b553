"""The client of flux-restful-api, as it comes from PyPI, against the service: what its own tests see, without
authentication, with the one user's password, and as one of several users.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from instance import clean_env

from headrace.service.store import database, users
from waiting import until

HEADRACE = str(Path(sys.executable).parent / "headrace")
SECRETS = {"FLUX_USER": "fluxuser", "FLUX_TOKEN": "1234567890", "FLUX_SECRET_KEY": "a key of thirty-two characters .."}


@pytest.fixture(params=["none", "token", "users"])
def url(instance: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a service, in an instance of its own."""
    env = clean_env(FLUX_URI=instance.uri, **({} if request.param == "none" else SECRETS))
    argv = [HEADRACE, "api", "start", "--port", "0", "--json", "--auth", request.param]
    if request.param == "users":
        argv += ["--database", str(tmp_path / "users")]
        store = database.open_file(argv[-1])
        users.add(store, SECRETS["FLUX_USER"], SECRETS["FLUX_TOKEN"], admin=False)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, cwd="/tmp") as service:
        assert service.stdout is not None
        yield json.loads(service.stdout.readline())["url"]
        service.terminate()
        assert service.wait() == 0


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The client as scripts make it: by the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {**SECRETS, "FLUX_RESTFUL_HOST": url}.items():
        monkeypatch.setenv(name, value)
    from flux_restful.client.main import get_client

    return get_client()


def test_a_script_submits_lists_reads_and_cancels(client: Any) -> None:
    assert len(client.list_nodes()["nodes"]) == 1
    assert client.jobs() == {"jobs": []}
    id = client.submit("sleep 1000")["id"]
    assert [job["id"] for job in client.jobs()["jobs"]] == [id]
    assert client.jobs(detail=True).keys() == {str(id)} and client.jobs(detail=True, listing=True)[0]["id"] == id
    assert client.jobs(id)["name"] == "sleep" and client.jobs("ƒ2") is None
    assert "requested to cancel" in client.cancel(id)["Message"]
    until(lambda: client.jobs(id)["state"] == "INACTIVE")
    assert "cannot be cancelled" in client.cancel(id)["Message"]

    id = client.submit(["sh", "-c", "'echo pancakes 🥞️ $COLOR; pwd'"], envars={"COLOR": "green"}, workdir="/")["id"]
    until(lambda: client.jobs(id)["state"] == "INACTIVE")
    assert client.output(id)["Output"] == ["pancakes 🥞️ green\n", "/\n"]

    refused = client.submit("sleep 1", option_flags={"-ompi": "noodles"})
    assert "keys without -o" in refused["Errors"][0]
    id = client.submit("true", num_tasks=2, num_nodes=1, option_flags={"mpi": "openmpi@5"}, exclusive=True)["id"]
    until(lambda: client.jobs(id)["result"] == "COMPLETED")

    found = client.search()
    assert found["recordsTotal"] == len(found["data"]) == 3 and "draw" in found
    assert client.search(start=1)["recordsFiltered"] == 2 and client.search(start=1, length=1)["recordsFiltered"] == 1
    assert client.search(query="nosuchjob")["data"] == []


def test_its_command_line(url: str, tmp_path: Path) -> None:
    env = {**os.environ, **SECRETS, "FLUX_RESTFUL_HOST": url, "HOME": str(tmp_path)}
    program = str(Path(sys.executable).parent / "flux-restful-cli")

    def run(*args: str) -> str:
        done = subprocess.run([program, *args], env=env, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert "is submitted" in run("submit", "--num_tasks", "2", "echo", "hello")
    (job,) = json.loads(run("list-jobs").partition("{")[2].join(["{", ""]))["jobs"]
    until(lambda: "hello" in run("logs", str(job["id"])))
    assert '"name": "echo"' in run("info", str(job["id"])) and "nodes" in run("list-nodes")
    assert "cannot be cancelled" in run("cancel", str(job["id"]))
