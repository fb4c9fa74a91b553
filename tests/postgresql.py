"""A real PostgreSQL of this machine, from Debian's package, for as long as a block lasts: `initdb`, then the server.

It refuses to run as root, so under root it runs as the package's user, who must be able to enter every folder above its
data: these are in a folder of their own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import waiting
from headrace.storage.database import Address, Database, connect

USER, NAME, PASSWORD = "headrace", "postgres", "spelled-out"
_SERVER_USER = "postgres"


def binaries() -> Path | None:
    """The folder of the newest server's programs; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Postgresql:
    """A server that listens at `host`; `address` is that of a database in it, which survives `stop` and `start`."""

    def __init__(self, folder: Path, host: str) -> None:
        self._host = host
        programs = binaries()
        assert programs is not None
        self._programs = programs
        self._data = folder / "data"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_SERVER_USER)
            self._as_user = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o644)
        with socket.socket() as free:
            free.bind((host, 0))
            self._port = free.getsockname()[1]
        self.address = Address(f"postgresql://{USER}@{host}:{self._port}/{NAME}", str(password))
        self._run("initdb", "-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", "-N")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as_user, str(self._programs / program), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        log = self._folder / "log"
        words = ["-D", str(self._data), "-h", self._host, "-p", str(self._port), "-k", str(self._folder)]
        # A change of users ends the tie to this process, so that is made after it. The tie is to the calling thread.
        command = [*self._as_user, "setpriv", "--pdeathsig", "INT", str(self._programs / "postgres"), *words]
        with log.open("ab") as out:
            self._process = subprocess.Popen([*command, "-c", "fsync=off"], stdout=out, stderr=out, cwd="/")
        waiting.until(lambda: self._answers(log))

    def _answers(self, log: Path) -> bool:
        assert self._process is not None and self._process.poll() is None, log.read_text()
        ready = [str(self._programs / "pg_isready"), "-q", "-h", self._host, "-p", str(self._port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """End it; connections break."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(waiting.PATIENCE)
        self._process = None

    def create(self, name: str) -> Address:
        """Make an empty database beside that of `address`."""
        with contextlib.closing(connect(self.address)) as database:
            database.execute(f"CREATE DATABASE {name}")
        url = self.address.url
        return Address(f"{url[: -len(NAME)]}{name}", self.address.password_file)


@contextlib.contextmanager
def running(host: str = "127.0.0.1") -> Iterator[Postgresql]:
    """A server with an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
    try:
        server = Postgresql(folder, host)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def opened(server: Postgresql) -> Iterator[Database]:
    """A connection to its database."""
    with contextlib.closing(connect(server.address)) as database:
        yield database


def emptied(address: Address) -> None:
    """Take all out of a database of PostgreSQL."""
    with contextlib.closing(connect(address)) as database:
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")
        database.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")


# The fixtures below are for the folders whose conftest.py imports them.


@pytest.fixture(scope="session")
def server() -> Iterator[Postgresql]:
    if binaries() is None:
        pytest.skip("needs PostgreSQL: `make packages` installs it")
    with running() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return Address(f"sqlite:{tmp_path}/store.sqlite")
    server = request.getfixturevalue("server")
    emptied(server.address)
    return server.address
