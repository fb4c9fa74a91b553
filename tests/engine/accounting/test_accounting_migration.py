"""Updates of older databases: rows are kept, tables become the current ones, and a failure changes nothing."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest

from headrace.engine.accounting import database, migration, service
from headrace.sched.accounting import rows
from headrace.storage.database import DatabaseError

# What early versions had, as far as it matters here: fewer columns, periods as columns, a table that went, NULLs.
EARLY = """
CREATE TABLE association_table (creation_time bigint(20) NOT NULL, mod_time bigint(20) DEFAULT 0 NOT NULL,
    deleted tinyint(4) DEFAULT 0 NOT NULL, username tinytext NOT NULL, userid int(11) DEFAULT 65534 NOT NULL,
    bank tinytext NOT NULL, default_bank tinytext NOT NULL, shares int(11) DEFAULT 1, max_running_jobs int(11),
    PRIMARY KEY (username, bank));
CREATE TABLE bank_table (bank_id integer PRIMARY KEY AUTOINCREMENT, bank text NOT NULL,
    parent_bank text DEFAULT '' NOT NULL, shares int NOT NULL);
CREATE TABLE job_usage_factor_table (username tinytext NOT NULL, userid int(11) NOT NULL, bank tinytext NOT NULL,
    usage_factor_period_0 real DEFAULT 0.0, usage_factor_period_1 real DEFAULT 0.0, usage_factor_period_10 real,
    last_job_timestamp real DEFAULT 0.0, PRIMARY KEY (username, bank));
CREATE TABLE t_half_life_period_table (cluster tinytext DEFAULT 'cluster', end_half_life_period real DEFAULT 0.0);
CREATE TABLE qos_table (qos tinytext NOT NULL, priority int NOT NULL);
INSERT INTO association_table VALUES (5, 6, 0, 'ann', 1001, 'A', 'A', NULL, 3),
    (5, 6, 0, 'bob', 1002, 'A', 'A', 4, NULL);
INSERT INTO bank_table VALUES (1, 'root', '', 1), (7, 'A', 'root', 2);
INSERT INTO job_usage_factor_table VALUES ('ann', 1001, 'A', 12.5, 6.25, 3.0, 99.5);
INSERT INTO t_half_life_period_table VALUES ('cluster', 1234.5);
INSERT INTO qos_table VALUES ('standby', 1);
"""


@pytest.fixture
def early(tmp_path: Path) -> Path:
    path = tmp_path / "site.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.executescript(EARLY)
    path.chmod(0o640)
    return path


def dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as plain:
        return [*plain.iterdump(), str(plain.execute("PRAGMA user_version").fetchone())]


def test_rows_of_an_early_version_are_kept_and_new_columns_have_their_defaults(early: Path) -> None:
    before = dump(early)
    steps: list[str] = []
    migration.update(str(early), "", steps.append)
    assert steps[0] == f"created backup at {early}.backup"
    assert {"checking for new tables", "new table queue_table", "checking for new columns"} < set(steps)
    assert steps[-1] == "updated database schema version to 38"
    with contextlib.closing(database.opened(str(early))) as data, contextlib.closing(database.template()) as template:
        for table in database.tables(template):
            columns = f"PRAGMA table_info({table})"
            assert data.rows(columns) == template.rows(columns)
        assert data.rows("SELECT * FROM qos_table") == [("standby", 1)]
        assert data.rows("SELECT username, active, shares, max_running_jobs, projects FROM association_table") == [
            *(("ann", 1, 1, 3, "*"), ("bob", 1, 4, 5, "*"))
        ]
        assert data.rows("SELECT bank_id, bank, active, parent_bank FROM bank_table") == [
            *((1, "root", 1, ""), (7, "A", 1, "root"))
        ]
        assert data.rows("SELECT * FROM job_usage_factor_table") == [
            *(("ann", 1001, "A", 99.5), ("bob", 1002, "A", 0.0))
        ]
        usage = "SELECT period, value FROM job_usage_per_association_table WHERE username = :user ORDER BY period"
        assert data.rows(usage, {"user": "ann"}) == [(0, 12.5), (1, 6.25), (2, 0.0), (3, 0.0), (10, 3.0)]
        assert data.rows(usage, {"user": "bob"}) == [(0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0)]
        assert dict(data.rows("SELECT * FROM priority_factor_weight_table")) == rows.DEFAULT_WEIGHTS
        assert dict(data.rows("SELECT * FROM config_table")) == rows.DEFAULT_CONFIG
        # The next bank gets an id that none had, and the service works.
        service.answer(data, "add_bank", {"bank": "B", "parent_bank": "root", "shares": 1}, service.OWNER)
        assert data.rows("SELECT bank_id FROM bank_table WHERE bank = 'B'") == [(8,)]
    backup = early.with_name("site.db.backup")
    assert dump(backup) == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert {path.name for path in early.parent.iterdir()} == {"site.db", "site.db.backup"}


def test_an_update_of_the_current_version_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    database.create(str(path))
    before = dump(path)
    migration.update(str(path), "", lambda _: None)
    assert dump(path) == before


def test_settings_and_usage_that_are_there_stay(early: Path) -> None:
    migration.update(str(early), "", lambda _: None)
    with contextlib.closing(sqlite3.connect(early)) as plain:
        plain.execute("UPDATE config_table SET value = '0.75' WHERE key = 'decay_factor'")
        plain.execute("UPDATE job_usage_per_association_table SET value = 1.0")
        plain.execute("DELETE FROM config_table WHERE key = 'gpu_weight'")
        plain.execute("PRAGMA user_version = 36")
        plain.commit()
    migration.update(str(early), "", lambda _: None)
    with contextlib.closing(database.opened(str(early))) as data:
        config = dict(data.rows("SELECT * FROM config_table"))
        assert (config["decay_factor"], config["gpu_weight"]) == ("0.75", "0.0")
        assert data.rows("SELECT DISTINCT value FROM job_usage_per_association_table") == [(1.0,)]


def test_tables_can_be_those_of_another_database(tmp_path: Path) -> None:
    path, other = tmp_path / "site.db", tmp_path / "other.db"
    for made in (path, other):
        database.create(str(made))
    with contextlib.closing(sqlite3.connect(other)) as plain:
        plain.executescript(
            "ALTER TABLE jobs ADD COLUMN queue text DEFAULT '' NOT NULL; CREATE TABLE organization (name tinytext);"
            "ALTER TABLE queue_table DROP COLUMN max_time_per_job;"
        )
    migration.update(str(path), str(other), lambda _: None)
    with contextlib.closing(sqlite3.connect(path)) as plain:
        assert "queue" in [row[1] for row in plain.execute("PRAGMA table_info(jobs)")]
        assert "max_time_per_job" not in [row[1] for row in plain.execute("PRAGMA table_info(queue_table)")]
        assert plain.execute("SELECT count(*) FROM organization").fetchone() == (0,)


def test_a_newer_database_is_refused_without_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    database.create(str(path))
    with contextlib.closing(sqlite3.connect(path)) as plain:
        plain.execute("PRAGMA user_version = 39")
    with pytest.raises(DatabaseError, match="has version 39, this program knows 38"):
        migration.update(str(path), "", lambda _: None)
    assert [found.name for found in tmp_path.iterdir()] == ["site.db"]


def test_a_failed_update_changes_nothing(early: Path) -> None:
    with contextlib.closing(sqlite3.connect(early)) as plain:
        plain.executescript("DROP TABLE bank_table; CREATE TABLE bank_table (bank_id integer, shares int);")
        plain.execute("INSERT INTO bank_table VALUES (1, 1)")
        plain.commit()
    before = dump(early)
    with pytest.raises(DatabaseError, match=r"NOT NULL constraint failed: bank_table.bank"):
        migration.update(str(early), "", lambda _: None)
    assert dump(early) == before


def test_an_update_waits_for_no_lock_forever(early: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOCK_TIMEOUT", 0.01)
    with contextlib.closing(sqlite3.connect(early, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="database is locked"):
            migration.update(str(early), "", lambda _: None)
        other.execute("ROLLBACK")
    migration.update(str(early), "", lambda _: None)
