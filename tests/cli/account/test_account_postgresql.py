"""`flux account` and its programs with an address of PostgreSQL: creation, updates, databases that cannot be used."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accounting_databases import NOW, Accounts
from engine.accounting.instance_stand_in import Instance, resources
from headrace.cli.account import priority_update
from headrace.engine.accounting import banks, database, export, queues, usage, users
from headrace.storage.database import Address, Database, Migration, connect
from postgresql import PASSWORD, Postgresql

# The tables that the page on accounting moves from a file to PostgreSQL.
MOVED = (
    *("bank_table", "queue_table", "association_table", "job_usage_factor_table"),
    *("job_usage_per_association_table", "jobs"),
)
Run = Callable[[str], Any]


@pytest.fixture
def site(server: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """An empty database; `password` in the directory in which commands run is its password."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text(PASSWORD)
    yield server.create(f"site_{os.urandom(4).hex()}")


@pytest.fixture
def run(site: Address, commands: Run) -> Run:
    """`run("flux account ...")`, where URL stands for the address."""
    return lambda line: commands(line.replace("URL", site.url))


@contextlib.contextmanager
def plain(site: Address) -> Iterator[Database]:
    with contextlib.closing(connect(site)) as opened:
        yield opened


def test_the_tables_are_made_once(run: Run, site: Address) -> None:
    missing = f"{site.url}: no tables of accounting: make them with 'flux account -p {site.url} create-db'"
    assert run("flux account-update-fshare -p URL --password-file=password") == (
        f"flux-account-update-fshare: ERROR: {missing}\n",
        1,
    )
    assert missing in run("flux account-update-db -p URL --password-file=password").text
    assert run(
        "flux account -p URL --password-file=password create-db --priority-decay-half-life=2d --decay-factor=0.25"
    ) == ("", 0)
    with plain(site) as data:
        config = dict(data.rows("SELECT key, value FROM config_table"))
        assert (config["priority_decay_half_life"], config["decay_factor"]) == ("172800.0", "0.25")
        assert data.rows("SELECT project FROM project_table") == [("*",)]
    again = run("flux account -p URL --password-file=password create-db")
    assert again == (f"flux-account: ERROR: {site.url}: the database has the tables of accounting already\n", 1)
    assert run("flux account-update-fshare -p URL --password-file=password") == ("", 0)
    assert run("flux account -p URL --password-file=password update-usage").status == 0


def test_a_creation_that_was_interrupted_can_be_repeated(run: Run, site: Address) -> None:
    assert run("flux account -p URL --password-file=password create-db").status == 0
    with plain(site) as data:
        for table in ("config_table", "project_table", "priority_factor_weight_table", "t_half_life_period_table"):
            data.execute(f"DELETE FROM {table}")
    assert run("flux account -p URL --password-file=password create-db") == ("", 0)


def test_an_older_database_is_updated_and_a_newer_one_is_not_opened(
    run: Run, site: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("flux account -p URL --password-file=password create-db").status == 0
    assert (
        run("flux account-update-db -p URL --password-file=password -v").text
        == "INFO: updated the tables of PostgreSQL from version 2 to 2\n"
    )
    files = database.remote_schema()
    added = [*files, Migration(3, "ALTER TABLE headrace_coordinator ADD COLUMN since BIGINT;\n")]
    with monkeypatch.context() as patch:
        patch.setattr(database, "remote_schema", lambda: added)
        assert database.OUT_OF_DATE in run("flux account-update-fshare -p URL --password-file=password").text
        instance = Instance()
        patch.setattr(priority_update, "Handle", lambda: instance)
        done = run("flux account-priority-update -p URL --password-file=password")
        assert "updating DB with 'flux account-update-db'" in done.text and done.status == 0
        assert [name for name, _ in instance.pushed][-1] == "rec_update"
        assert run("flux account-update-fshare -p URL --password-file=password") == ("", 0)
    newer = f"{site.url}: the database has version 3, this program knows 2: use a newer one\n"
    assert run("flux account-update-fshare -p URL --password-file=password") == (
        f"flux-account-update-fshare: ERROR: {newer}",
        1,
    )
    assert (
        "has version 3, this program knows only 2" in run("flux account-update-db -p URL --password-file=password").text
    )
    assert (
        "cannot be taken from another database"
        in run("flux account-update-db -p URL --password-file=password -n other.db").text
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("-p postgresql://127.0.0.1:1/site", "Connection refused"),
        ("-p postgresql://ann:secret@127.0.0.1:1/site", "write it into a password file"),
        ("-p postgresql://ann@127.0.0.1:1/site --password-file=none", "'none'"),
        ("-p postgres://ann@127.0.0.1:1/site", "Connection refused"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        "flux account {} create-db",
        "flux account-update-usage {}",
        "flux account-update-db {}",
        "flux account-priority-update {}",
        "flux account-service {}",
    ],
)
def test_a_database_that_cannot_be_reached_is_named(commands: Run, command: str, options: str, why: str) -> None:
    done = commands(command.format(options))
    assert done.status == 1 and why in done.text and len(done.text.splitlines()) == 1
    assert "secret" not in done.text


def test_a_wrong_password_is_told(commands: Run, site: Address, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("guessed")
    done = commands(f"flux account-update-fshare -p {site.url} --password-file=password")
    assert done.status == 1 and 'password authentication failed for user "headrace"' in done.text


def test_a_name_of_a_cluster_is_checked(commands: Run, remote: Accounts) -> None:
    options = f"-p {remote.url} --password-file={remote.access.password_file}"
    done = commands(f"flux account-fetch-job-records {options} --cluster ''")
    assert done.status == 1 and "cluster: '' is not a name of 1 to 255 characters" in done.text


def test_a_writer_that_does_not_end_is_told(commands: Run, remote: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.restore("empty")
    monkeypatch.setattr(database, "_LOCK_TIMEOUT", 0.01)
    with remote.data.transaction(locked=True):
        done = commands(f"flux account-update-usage -p {remote.url} --password-file={remote.access.password_file}")
    assert done.status == 1 and f"{remote.url}: database is locked" in done.text


def test_a_file_is_moved_to_postgresql(run: Run, site: Address, filled: Path, tmp_path: Path) -> None:
    shutil.copy(filled, "old.db")
    with contextlib.closing(database.opened("old.db")) as old:
        job = {"id": "101", "userid": 1001, "bank": "A", "R": resources(2), "ranks": "0-1", "jobspec": "{}"}
        database.insert(old, "jobs", {**job, "t_submit": NOW, "t_run": NOW, "t_inactive": NOW + 10})
        database.need_own_tables(old)
        with old.transaction(locked=True):
            assert usage.update(old, NOW) == 1
        export.export_db(old, {"directory": str(tmp_path)})
        before = [users.list_users(old, {}), banks.list_banks(old, {}), queues.list_queues(old, {})]
    assert run("flux account -p URL --password-file=password create-db").status == 0
    access = database.Access("password", "north")
    with contextlib.closing(database.opened(site.url, access)) as new:
        for table in MOVED:
            with new.transaction(locked=True):
                export.pop_db(new, {"csv_file": f"{table}.csv"})
        assert [users.list_users(new, {}), banks.list_banks(new, {}), queues.list_queues(new, {})] == before
        with new.transaction(locked=True):
            assert usage.update(new, NOW) == 0
        assert new.rows("SELECT DISTINCT cluster FROM jobs") == [("north",)]


def test_all_tables_are_exported(site: Address, run: Run, tmp_path: Path) -> None:
    assert run("flux account -p URL --password-file=password create-db").status == 0
    access = database.Access("password")
    with contextlib.closing(database.opened(site.url, access)) as data:
        export.export_db(data, {"directory": str(tmp_path)})
    heads = {path.stem: path.read_text().splitlines()[0] for path in tmp_path.glob("*.csv")}
    assert heads["jobs"].split(",")[6:8] == ["R", "jobspec"] and heads["jobs"].endswith(",cluster")
    assert heads["bank_table"].startswith("bank_id,bank,") and "rowid" not in "".join(heads.values())
