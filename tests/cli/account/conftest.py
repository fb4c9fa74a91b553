"""`flux account` against the service's own functions and a real database, without a broker."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from accounting_databases import KINDS, NOW, Accounts, accounts
from headrace.cli.account import main as account_main
from headrace.cli.main import run_command
from headrace.engine.accounting import database, service
from headrace.storage.database import Database
from postgresql import server

__all__ = ["accounts", "server"]


class Told(NamedTuple):
    """What a command line printed, stdout before stderr, and its exit status."""

    text: str
    status: int


class ServiceHandle:
    """Answers as the service does, over JSON."""

    def __init__(self, data: Database) -> None:
        self.data = data
        self._answer: object = None

    def __call__(self) -> ServiceHandle:
        return self

    def rpc(self, topic: str, obj: object) -> ServiceHandle:
        name = topic.partition(".")[2]
        try:
            text = service.answer(self.data, name, json.loads(json.dumps(obj)), service.OWNER)
        except service.Refused as exc:
            raise OSError(exc.errnum, str(exc)) from None
        self._answer = {name: text or 0}
        return self

    def get(self) -> object:
        return self._answer


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database."""
    path = tmp_path_factory.mktemp("account") / "empty.db"
    database.create(str(path), now=NOW)
    return path


@pytest.fixture(scope="session")
def filled(empty: Path) -> Path:
    """A database with TREE."""
    path = empty.with_name("filled.db")
    shutil.copy(empty, path)
    with contextlib.closing(database.opened(str(path))) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(account_main, "Handle", ServiceHandle(opened))
        assert told(TREE) == Told("", 0)
    return path


@pytest.fixture(scope="session")
def remote(accounts: Accounts) -> Accounts:
    """A database of PostgreSQL, in which `filled` is saved, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account_main, "Handle", ServiceHandle(accounts.data))
        assert told(TREE) == Told("", 0)
    accounts.save("filled")
    return accounts


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the database."""
    return str(request.param)


@pytest.fixture
def data(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A copy of `filled` for tests with `site`, otherwise of `empty`.

    In SQLite, it is `accounting.db` in the directory in which commands run.
    """
    name = "filled" if "site" in request.fixturenames else "empty"
    if kind == "postgresql":
        remote = request.getfixturevalue("remote")
        remote.restore(name)
        yield remote.data
        return
    path = tmp_path / "accounting.db"
    shutil.copy(request.getfixturevalue(name), path)
    with contextlib.closing(database.opened(str(path))) as opened:
        # Nothing is to survive a loss of power here.
        opened.execute("PRAGMA synchronous = OFF")
        yield opened


def told(lines: str) -> Told:
    """Run lines of commands, and return what the last one printed."""
    result = Told("", 0)
    for line in filter(None, map(str.strip, lines.splitlines())):
        flux, name, *words = shlex.split(line)
        assert flux == "flux"
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run_command(name, words)
        result = Told(out.getvalue() + err.getvalue(), status)
    return result


@pytest.fixture
def commands() -> Callable[[str], Told]:
    """Like `run`, for tests that name databases of their own."""
    return told


@pytest.fixture
def run(
    data: Database, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Told]:
    """`run("flux account COMMAND ...")`; lines run one after another, and the last one's result is returned.

    The path `accounting.db` stands for the database, also in PostgreSQL.
    """
    monkeypatch.setattr(account_main, "Handle", ServiceHandle(data))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    if not data.is_postgresql:
        return told
    remote = request.getfixturevalue("remote")
    named = rf"\1{remote.url} --password-file={remote.access.password_file}"
    return lambda lines: told(re.sub(r"(-p |--path=)accounting\.db", named, lines))


TREE = """
    flux account add-bank root 1
    flux account add-bank --parent-bank=root A 2
    flux account add-bank --parent-bank=root B 1
    flux account add-bank --parent-bank=B C 1
    flux account add-user --username=ann --userid=1001 --bank=A
    flux account add-user --username=bob --userid=1002 --bank=A
    flux account add-user --username=bob --userid=1002 --bank=C
    flux account add-queue day
    flux account add-queue night
    flux account add-project sun
    flux account add-project moon
"""


@pytest.fixture
def site(run: Callable[[str], Told]) -> Callable[[str], Told]:
    """`run` with banks root, A, B and C, which is below B; ann in A, bob in A and C; two queues and projects."""
    return run
