"""`flux account` about projects, factors, settings, and the database as a whole: each option by its effect."""

from __future__ import annotations

import contextlib
import json
import re
import stat
import time
from pathlib import Path

import pytest

from accounting_databases import only_sqlite, sqlite_first
from headrace.engine.accounting import database
from headrace.sched.accounting import rows
from headrace.storage.database import Database


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text", "status"),
    [
        ("add-project sun", "add-project: IntegrityError: project sun already exists in project_table", 1),
        ("add-project 'a,b'", "project_table: project: 'a,b' is not a name", 1),
        ("view-project x", "view-project: ValueError: project x not found in project_table", 1),
        ("delete-project x", "project x not found in project_table", 1),
        ("delete-project '*'", "project_table: project: '*' is the project of all associations", 1),
        ("list-projects --fields=x", "invalid fields: x", 1),
        ("view-factor x", "factor x not found in priority_factor_weight_table", 1),
        (
            "edit-factor --factor=x --weight=1",
            "factor x not found in priority_factor_weight_table; available factors are fairshare,queue,bank,urgency",
            1,
        ),
        ("edit-factor --factor=bank --weight=x", "edit-factor: error: argument --weight: invalid int value: 'x'", 2),
        ("edit-factor --factor=bank --weight=2147483648", "priority_factor_weight_table: weight: 2147483648 is not", 1),
        ("list-factors --fields=x", "invalid fields: x", 1),
        ("add-config decay_factor=1", "add-config: IntegrityError: UNIQUE constraint failed: config_table.key", 1),
        ("add-config a=b=c", 'ValueError: key-value string must contain exactly one "="', 1),
        ("add-config a", 'key-value string must contain exactly one "="', 1),
        ("add-config =a", "config_table: key: '' is not a name of 1 to 255 characters", 1),
        ("view-config x", "view-config: ValueError: key x not found in config_table", 1),
        ("delete-config x", "key x not found in config_table", 1),
        ("delete-config decay_factor", "key-value pair is not allowed to be removed from config_table", 1),
        ("edit-config x=1", "edit-config: ValueError: key x not found in config_table", 1),
        ("edit-config node_weight=2 x=1", "key x not found in config_table", 1),
        ("edit-config priority_usage_reset_period=x", "edit-config: ValueError: invalid Flux standard duration", 1),
        ("edit-config priority_decay_half_life=0", "invalid Flux standard duration: '0' is not a period", 1),
        ("edit-config priority_decay_half_life=1", "2419200.0 s are 2419200 periods, more than 10000", 1),
        ("edit-config decay_factor=1.5", "decay_factor must be a floating-point value between 0 and 1", 1),
        ("edit-config core_weight=x", "config_table: core_weight: 'x' is not a number from 0 to 1e15", 1),
        ("edit-config gpu_weight=-1", "config_table: gpu_weight: '-1' is not a number from 0 to 1e15", 1),
        ("edit-config deny_unknown_queues=maybe", "deny_unknown_queues must be 'true' or 'false'", 1),
        ("list-configs --fields=x", "invalid fields: x", 1),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(site, data: Database, line: str, text: str, status: int) -> None:
    tables = "project_table", "priority_factor_weight_table", "config_table", "job_usage_per_association_table"
    before = [data.rows(f"SELECT * FROM {table}") for table in tables]
    told = site(f"flux account {line}")
    assert told.status == status
    assert text in told.text
    assert [data.rows(f"SELECT * FROM {table}") for table in tables] == before


def test_projects_are_shown_in_each_form(site) -> None:
    assert site("flux account list-projects").text == (
        "project_id | project | usage\n-----------+---------+------\n"
        "1          | *       | 0.0  \n2          | sun     | 0.0  \n3          | moon    | 0.0  \n"
    )
    assert json.loads(site("flux account list-projects --json --fields=project").text)[2] == {"project": "moon"}
    assert site("flux account list-projects -o '{project:>5}|'").text == "project|\n    *|\n  sun|\n moon|\n"
    assert site("flux account list-projects --format={project_id}").text == "project_id\n1\n2\n3\n"
    assert json.loads(site("flux account view-project sun").text) == [{"project_id": 2, "project": "sun", "usage": 0.0}]
    assert site("flux account view-project sun --parsable").text.splitlines()[2] == "2          | sun     | 0.0  "
    assert site("flux account view-project sun -o {project}").text == "project\nsun\n"
    assert site("flux account view-project sun --format={usage}").text == "usage\n0.0\n"


def test_the_deletion_of_a_project_that_users_have_is_told(site) -> None:
    site("flux account edit-user ann --projects=sun")
    assert site("flux account delete-project moon") == ("", 0)
    assert site("flux account delete-project sun").text.startswith(
        "WARNING: user(s) in the association_table still reference this project. "
    )
    assert site("flux account list-projects --format={project}").text == "project\n*\n"


def test_factors_are_changed_and_reset(run) -> None:
    run("flux account edit-factor --factor=fairshare --weight=999\nflux account edit-factor --factor=bank --weight=-5")
    assert run("flux account list-factors").text == (
        "factor    | weight\n----------+-------\nfairshare | 999   \nqueue     | 10000 \nbank      | -5    \n"
        "urgency   | 1000  \n"
    )
    assert run("flux account reset-factors") == ("", 0)
    assert json.loads(run("flux account list-factors --json").text) == [
        {"factor": factor, "weight": weight}
        for factor, weight in (("fairshare", 100000), ("queue", 10000), ("bank", 0), ("urgency", 1000))
    ]
    assert run("flux account list-factors --fields=weight --format={weight}").text == "weight\n100000\n10000\n0\n1000\n"
    assert run("flux account view-factor queue -o {factor}={weight}").text == "factor=weight\nqueue=10000\n"
    assert run("flux account view-factor queue --format={weight}").text == "weight\n10000\n"
    assert json.loads(run("flux account view-factor queue --json").text) == [{"factor": "queue", "weight": 10000}]
    assert run("flux account view-factor queue").text.splitlines()[2] == "queue  | 10000 "


def test_settings_are_added_changed_and_deleted(run) -> None:
    run(
        "flux account add-config site=here\nflux account edit-config site=there node_weight=0.5 "
        "deny_unknown_queues=True"
    )
    assert run("flux account list-configs").text == (
        "key                         | value  \n----------------------------+--------\n"
        "priority_usage_reset_period | 2419200\npriority_decay_half_life    | 604800 \n"
        "decay_factor                | 0.5    \n"
        "node_weight                 | 0.5    \ncore_weight                 | 0.0    \n"
        "gpu_weight                  | 0.0    \n"
        "deny_unknown_queues         | True   \nsite                        | there  \n"
    )
    assert run("flux account list-configs --fields=key --json").text.count('"key"') == 8
    assert run("flux account list-configs --format={value}").text.splitlines()[-1] == "there"
    assert run("flux account view-config site").text.splitlines()[2] == "site | there"
    assert (
        run("flux account view-config site --json").text == '[\n  {\n    "key": "site",\n    "value": "there"\n  }\n]\n'
    )
    assert run("flux account view-config site -o '{key}->{value}'").text == "key->value\nsite->there\n"
    assert run("flux account view-config site --format={key}").text == "key\nsite\n"
    assert run("flux account delete-config site") == ("", 0)
    assert run("flux account view-config site").status == 1


def test_new_periods_empty_all_usage(site, data: Database) -> None:
    data.execute("UPDATE job_usage_per_association_table SET value = 9.0")
    data.execute("UPDATE job_usage_factor_table SET last_job_timestamp = 9.0")
    before = time.time()
    site("flux account edit-config priority_decay_half_life=60m priority_usage_reset_period=150m")
    usage = "SELECT period, value FROM job_usage_per_association_table WHERE username = 'ann' ORDER BY period"
    assert data.rows(usage) == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert data.rows("SELECT DISTINCT last_job_timestamp FROM job_usage_factor_table") == [(0.0,)]
    ((end,),) = data.rows("SELECT end_half_life_period FROM t_half_life_period_table")
    assert before + 3600 <= end <= time.time() + 3600
    config = dict(data.rows("SELECT key, value FROM config_table"))
    assert config["priority_decay_half_life"] == "3600.0"
    assert before <= float(config["reconfigure_time"]) <= time.time()
    # A user who is added later has as many whole periods.
    site("flux account add-user -u cy -B A")
    assert data.rows(usage.replace("ann", "cy")) == [(0, 0.0), (1, 0.0)]


@only_sqlite
def test_a_database_is_created_for_its_owner_alone(run, tmp_path: Path) -> None:
    before = time.time()
    assert run(
        "flux account --path=new/site.db create-db --priority-usage-reset-period=4h --priority-decay-half-life=3600 "
        "--decay-factor=0.25"
    ) == ("", 0)
    assert stat.S_IMODE((tmp_path / "new/site.db").stat().st_mode) == 0o600
    with contextlib.closing(database.opened(str(tmp_path / "new/site.db"))) as made:
        config = dict(made.rows("SELECT key, value FROM config_table"))
        ((end,),) = made.rows("SELECT end_half_life_period FROM t_half_life_period_table")
    assert config["priority_usage_reset_period"] == "14400.0"
    assert config["priority_decay_half_life"] == "3600.0"
    assert config["decay_factor"] == "0.25"
    assert before + 3600 <= end <= time.time() + 3600


@only_sqlite
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--path=accounting.db create-db", "accounting.db: the file is a database already"),
        ("-p new.db create-db --decay-factor=1", "Value must be between 0.0 and 1.0, but got 1.0"),
        ("-p new.db create-db --priority-decay-half-life=inf", "invalid Flux standard duration: 'inf' is not a period"),
        ("-p new.db create-db --priority-usage-reset-period=x", "invalid Flux standard duration"),
        ("-p accounting.db/new.db create-db", "File exists"),
    ],
)
def test_a_database_is_not_created_where_it_cannot_be(run, tmp_path: Path, line: str, text: str) -> None:
    told = run(f"flux account {line}")
    assert told.status == 1
    assert text in told.text
    assert told.text.startswith("flux-account: ERROR: ")
    assert not (tmp_path / "new.db").exists()


def test_the_data_of_the_plugin_is_exported(site) -> None:
    site(
        "flux account edit-user ann --queues=day,night --max-nodes=3\nflux account edit-config deny_unknown_queues=true"
    )
    data = json.loads(site("flux account export-json").text)
    assert list(data) == ["associations", "queues", "projects", "banks", "config", "priority_factors"]
    assert data["associations"][0] == {
        "userid": 1001, "bank": "A", "def_bank": "A", "fairshare": 0.5, "max_running_jobs": 5, "max_active_jobs": 7,
        "queues": "day,night", "active": 1, "projects": "*", "def_project": "*", "max_nodes": 3,
        "max_cores": 2147483647, "max_sched_jobs": 2147483647,
    }  # fmt: skip
    assert list(data["queues"][0]) == [
        *("queue", "min_nodes_per_job", "max_nodes_per_job", "max_time_per_job", "priority", "max_running_jobs"),
        *("max_nodes_per_assoc", "max_sched_jobs", "max_sched_nodes_per_assoc", "max_sched_cores_per_assoc"),
    ]
    assert data["projects"] == [{"project": "*"}, {"project": "sun"}, {"project": "moon"}]
    assert data["banks"][1] == {"bank": "A", "priority": 0.0}
    assert data["config"] == {"deny_unknown_queues": True}
    assert data["priority_factors"][0] == {"factor": "fairshare", "weight": 100000}


def test_the_tree_is_exported_for_the_emulator(site) -> None:
    root = json.loads(site("flux account export-db --fairshare-emulate").text)["root"]
    user = {"username": "ann", "shares": 1, "usage": 0.0}
    assert root["children"][0]["children"][0] == user
    assert [(each["bank"], each["shares"]) for each in root["children"]] == [("A", 2), ("B", 1)]
    assert json.loads(site("flux account export-db -F").text)["root"] == root


def test_exported_tables_can_be_read_again(site, data: Database, tmp_path: Path) -> None:
    assert site("flux account export-db") == ("", 0)
    assert (tmp_path / "bank_table.csv").read_bytes().splitlines()[:2] == [
        b"bank_id,bank,active,parent_bank,shares,job_usage,priority,ignore_older_than",
        b"1,root,1,,1,0.0,0.0,0",
    ]
    tables = ("bank_table", "association_table", "queue_table", "job_usage_per_association_table")

    def found() -> list[object]:
        return [data.rows(f"SELECT {', '.join(rows.columns(table))} FROM {table} ORDER BY rowid") for table in tables]

    before = found()
    for table in reversed(tables):
        data.execute(f"DELETE FROM {table}")
    for table in tables:
        assert site(f"flux account pop-db -c {table}.csv") == ("", 0)
    assert found() == before
    site("flux account add-bank --parent-bank=root D 1")
    assert site("flux account view-bank D -o {bank_id}").text == "bank_id\n5\n"


def test_chosen_columns_of_a_file_are_read_and_empty_values_are_defaults(run, data: Database, tmp_path: Path) -> None:
    (tmp_path / "bank_table.csv").write_text("bank,priority,parent_bank,shares\nroot,7,,1\nA,8,root,2\n\n")
    run("flux account pop-db --csv-file=bank_table.csv --fields=bank,parent_bank,shares")
    assert data.rows("SELECT bank, parent_bank, shares, priority FROM bank_table") == [
        *(("root", "", 1, 0.0), ("A", "root", 2, 0.0))
    ]
    (tmp_path / "queue_table.csv").write_text("queue,priority\nday,\nnight,5\n")
    run("flux account pop-db -c queue_table.csv -f queue")
    assert data.rows("SELECT queue, priority FROM queue_table") == [("day", 0), ("night", 0)]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("foo", "a\n1\n", 'table "foo" does not exist in the database'),
        ("bank_table", "bank,shares,x\nD,1,1\n", "bank_table.csv, line 1: bank_table has no column 'x'"),
        ("bank_table", "bank,parent_bank,shares\nD,root,1\nE,root\n", "bank_table.csv, line 3: 2 values for 3 columns"),
        (
            "bank_table",
            "bank,parent_bank,shares\nD,root,1\nE,root,-1\n",
            "line 3: bank_table: shares: '-1' is not a whole",
        ),
        ("bank_table", 'bank,parent_bank,shares\nD,root,1\n"E,root', "line 3: unexpected end of data"),
        ("bank_table", "bank,parent_bank,shares\nD,X,1\n", "bank_table: parent_bank: 'X', the parent of D, is not in"),
        ("bank_table", "bank,parent_bank,shares\nD,,1\n", "bank_table: parent_bank: root and D have no parent"),
        ("bank_table", "bank,parent_bank,shares\nD,E,1\nE,D,1\n", "bank_table: parent_bank: D is below itself"),
        ("bank_table", "bank,parent_bank,shares\nA,root,1\n", "bank_table: bank: 'A' occurs more than once"),
        (
            "bank_table",
            "bank,parent_bank,shares\nD,A,1\n",
            "association_table: bank: 'A', of user ann, has banks below it",
        ),
        (
            "association_table",
            "creation_time,username,bank,default_bank\n0,cy,X,X\n",
            "bank: 'X', of user cy, is not in",
        ),
        (
            "association_table",
            "creation_time,username,bank,default_bank\n0,ann,A,A\n",
            "line 2: (UNIQUE constraint failed|duplicate key value)",
        ),
        (
            "association_table",
            "username,bank\ncy,A\n",
            "line 2: (NOT NULL constraint failed: association_table.creation_time|null value in column .creation_time)",
        ),
    ],
)
def test_a_file_with_a_mistake_adds_nothing(
    site, data: Database, tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / f"{name}.csv").write_text(text)
    before = data.rows("SELECT * FROM bank_table"), data.rows("SELECT * FROM association_table")
    told = site(f"flux account pop-db -c {name}.csv")
    assert told.status == 1
    assert re.search(why, told.text)
    assert (data.rows("SELECT * FROM bank_table"), data.rows("SELECT * FROM association_table")) == before


def test_a_missing_file_and_a_missing_column_are_named(site, tmp_path: Path) -> None:
    assert "No such file or directory" in site("flux account pop-db -c queue_table.csv").text
    (tmp_path / "queue_table.csv").write_text("queue\nx\n")
    assert "the file has no column 'priority'" in site("flux account pop-db -c queue_table.csv -f queue,priority").text
    assert "queue_table has no column 'x'" in site("flux account pop-db -c queue_table.csv -f x").text


@sqlite_first
@pytest.mark.parametrize("line", ["", "nosuch", "-p jobs", "--no-such-option"])
def test_a_line_without_a_command_shows_the_usage(run, line: str) -> None:
    told = run(f"flux account {line}")
    assert told.status == 2
    assert told.text.startswith("usage: flux-account [-h] [-p FILE|URL] [--password-file FILE] COMMAND ...\n")


def test_the_help_names_each_command(run) -> None:
    from headrace.cli.account.main import COMMANDS

    told = run("flux account --help").text
    assert [name for name in COMMANDS if f"\n    {name} " not in told] == []
    assert all(run(f"flux account {name} --help").text.startswith(f"usage: flux-account {name} ") for name in COMMANDS)
