"""Real instances behind the service, and clients of it within this process."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from instance import FLUX, clean_env, processes_with

import studies
from headrace.engine.accounting import database as accounting_database
from headrace.engine.accounting.service import OWNER, answer
from headrace.experiments.store.folder import REPORT
from headrace.service.app import create_app
from headrace.service.settings import Settings
from headrace.service.store import database, users
from headrace.wire.client.handle import Handle
from waiting import until

with warnings.catch_warnings():
    # Starlette's test client goes over to another package of the same interface.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

ENVIRONMENT = {**clean_env(), "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}


class Instance:
    """A running instance of one broker; `uri` is its address. A test that stops it says so by `stopped`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.stopped = False

    def flux(self, *args: str) -> str:
        """What a command of `flux` prints in this instance."""
        done = subprocess.run(
            [FLUX, *args], env={**ENVIRONMENT, "FLUX_URI": self.uri}, capture_output=True, text=True, check=True
        )
        return done.stdout

    def answers(self, topic: str) -> bool:
        """True if a service answers an empty request without ENOSYS."""
        with Handle(self.uri) as handle:
            try:
                handle.rpc(topic, {}).get()
            except OSError as exc:
                return exc.errno != errno.ENOSYS
        return True


@contextlib.contextmanager
def running(config: str = "") -> Iterator[Instance]:
    """A new instance with the text of a configuration, whose end leaves nothing behind."""
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    mark = f"HR_TEST={folder}"
    Path(folder, "config.toml").write_text(config)
    begun = subprocess.Popen(
        [FLUX, "start", "--test-size=1", f"--config-path={folder}/config.toml", "sh", "-c", "echo $FLUX_URI; exec cat"],
        env={**ENVIRONMENT, "TMPDIR": folder, "HR_TEST": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert begun.stdin is not None and begun.stdout is not None
    found = Instance(begun.stdout.readline().strip())
    try:
        yield found
    finally:
        begun.stdin.close()
        status = begun.wait()
        left = processes_with(mark)
        shutil.rmtree(folder, ignore_errors=True)
    assert left == [] and (found.stopped or status == 0)


class ServiceProcess(NamedTuple):
    """The service as a process of its own, without authentication."""

    url: str
    pid: int

    def open(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """A response of which no more is read than a caller asks for; `Last_Event_ID` stands for `Last-Event-ID`."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse()


@contextlib.contextmanager
def serving(uri: str, *options: str) -> Iterator[ServiceProcess]:
    """The service of the broker at this address, with more options.

    At the end it is told to end, which it does in order.
    """
    argv = [
        Path(sys.executable).parent / "headrace",
        "api",
        "start",
        "--port",
        "0",
        "--json",
        "--auth",
        "none",
        *options,
    ]
    env = clean_env(FLUX_URI=uri)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield ServiceProcess(json.loads(process.stdout.readline())["url"], process.pid)
        finally:
            process.terminate()
        assert "Traceback" not in process.stderr.read()
        assert process.wait() == 0


@pytest.fixture(scope="session")
def shared() -> Iterator[Instance]:
    """An instance that several tests use, with the jobs of all of them."""
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def modules_own() -> Iterator[Instance]:
    """An instance that the tests of one file share."""
    with running() as found:
        yield found


@pytest.fixture
def instance() -> Iterator[Instance]:
    """An instance of a test's own, without jobs, which takes those of several users."""
    with running(AS_OWNER) as found:
        yield found


AS_OWNER = '[headrace.guests]\nsubmit = "as-owner"\n'
PASSWORD = "a password of users"


class Group:
    """A service with the users ann, bob and eve (whose passwords fail), and boss, an administrator; and its clients.

    It has an experiment `study` with two failed runs.
    """

    def __init__(self, instance: Instance, folder: Path) -> None:
        self.instance = instance
        self.database = str(folder / "api.sqlite")
        self.audit = folder / "audit"
        store = database.open_file(self.database)
        for name in ("ann.x", "bob.x", "boss.x", "eve.x"):
            users.add(store, name, PASSWORD, name == "boss.x")
        (experiments := folder / "experiments").mkdir()
        made = studies.study(
            experiments, outcome=studies.valued({}), ended=2, errors={("lammps-1", 1): b"secret of ann"}
        )
        (made / REPORT).write_text("<h1>secret of ann</h1>")
        settings = Settings(
            uri=instance.uri,
            auth="users",
            database=self.database,
            audit=str(self.audit),
            experiments=str(experiments),
        )
        self.app = create_app(settings)

    def client(self, name: str = "", cookie: bool = False) -> Any:
        """A client with the user's token in its header, or logged in on the page; without a name, nobody's."""
        made = TestClient(self.app, follow_redirects=False, base_url="http://localhost")
        if name and cookie:
            assert log_in(made, name).status_code == 303
        elif name:
            answer = made.post("/v1/login/access-token", data={"username": name, "password": PASSWORD})
            made.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return made


def forms_token(client: Any, path: str = "/login") -> str:
    """The token of the session's forms, from a page that has one."""
    found = re.search('name="csrf" value="([0-9a-f]+)"', client.get(path).text)
    assert found is not None
    return found[1]


def log_in(client: Any, name: str, password: str = PASSWORD, **fields: str) -> Any:
    """The answer to the form."""
    return client.post("/login", data={"csrf": forms_token(client), "name": name, "password": password, **fields})


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A service with several users that tests share, in an instance of its own, which has banks without a policy."""
    folder = tmp_path_factory.mktemp("group")
    with accounted(folder) as found:
        yield Group(found, folder)


@pytest.fixture(scope="session")
def banked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A service with several users in an instance whose jobs have their priorities from banks."""
    folder = tmp_path_factory.mktemp("banked")
    with accounted(folder, POLICY) as found:
        yield Group(found, folder)


POLICY = '[job-manager]\nplugins = [{load = "mf_priority.so"}]\n'
# Users with their user ids and banks: those of a Group, and carl and dora. bob coordinates biology.
BANKS = (("root", "", 1), ("physics", "root", 3), ("biology", "root", 1), ("plants", "biology", 1))
ASSOCIATIONS = (
    *(("ann.x", 200_000, "physics"), ("bob.x", 200_001, "plants"), ("carl.x", 200_009, "plants")),
    *(("boss.x", 200_002, "physics"), ("dora.x", 200_010, "physics")),
)


@contextlib.contextmanager
def accounted(folder: Path, config: str = "", associations: Any = ASSOCIATIONS) -> Iterator[Instance]:
    """An instance with the banks BANKS and their users, in which jobs of users run as the owner."""
    path = str(folder / "accounting.db")
    accounting_database.create(path)
    with contextlib.closing(accounting_database.opened(path)) as data:
        accounting_database.need_own_tables(data)
        changes: list[tuple[str, dict[str, Any]]] = [
            ("add_bank", {"bank": bank, "parent_bank": parent, "shares": shares}) for bank, parent, shares in BANKS
        ]
        changes += [
            ("add_user", {"username": user, "userid": userid, "bank": bank, "max_running_jobs": 2})
            for user, userid, bank in associations
        ]
        changes.append(("add_coordinator", {"username": "bob.x", "bank": "biology"}))
        for name, payload in changes:
            answer(data, name, payload, OWNER)
    with running(f'{AS_OWNER}[accounting]\ndatabase = "{path}"\ninterval = 0.2\n{config}') as found:
        until(lambda: found.answers("accounting.list_banks"))
        yield found


@pytest.fixture(scope="session")
def served() -> Callable[..., Any]:
    """A client of the service with these settings. As with scripts of flux-restful-api, each request has a new loop."""

    def make(instance: Instance, **settings: Any) -> Any:
        settings.setdefault("auth", "none")
        app = create_app(Settings(uri=instance.uri, **settings))
        return TestClient(app, follow_redirects=False, base_url="http://localhost")

    return make


@pytest.fixture(scope="session")
def client(shared: Instance, served: Callable[..., Any]) -> Any:
    """A client of the service without authentication, in the shared instance."""
    return served(shared)
