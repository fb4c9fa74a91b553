"""`flux account` about users: each option is shown by its effect, each rule of the table by what it refuses."""

from __future__ import annotations

import json

import pytest

from accounting_databases import sqlite_first
from headrace.storage.database import Database

COLUMNS = [
    *("creation_time", "mod_time", "active", "username", "userid", "bank", "default_bank", "shares", "job_usage"),
    *("fairshare", "max_running_jobs", "max_active_jobs", "max_nodes", "max_cores", "queues", "projects"),
    *("default_project", "max_sched_jobs"),
]


def row(run, user="ann", at=0):
    return json.loads(run(f"flux account view-user {user}").text)[at]


def test_a_new_user_has_the_defaults_of_flux_accounting(site) -> None:
    ann = row(site)
    assert list(ann) == COLUMNS
    del ann["creation_time"], ann["mod_time"]
    assert ann == {
        "active": 1, "username": "ann", "userid": 1001, "bank": "A", "default_bank": "A", "shares": 1, "job_usage": 0.0,
        "fairshare": 0.5, "max_running_jobs": 5, "max_active_jobs": 7, "max_nodes": "unlimited",
        "max_cores": "unlimited", "queues": "", "projects": "*", "default_project": "*", "max_sched_jobs": "unlimited",
    }  # fmt: skip


def test_a_user_has_usage_of_each_period_from_the_first_day(site, data: Database) -> None:
    usage = "SELECT username, userid, bank, period, value FROM job_usage_per_association_table WHERE username = 'ann'"
    assert sorted(data.rows(usage)) == [("ann", 1001, "A", period, 0.0) for period in range(4)]
    last = data.rows(
        "SELECT username, userid, bank, last_job_timestamp FROM job_usage_factor_table WHERE username = 'ann'"
    )
    assert last == [("ann", 1001, "A", 0.0)]


def test_each_option_of_add_user_sets_its_column(site) -> None:
    site(
        "flux account add-user -u cy -i 1003 -B A --shares=3 --fairshare=0.25 --max-running-jobs=1 --max-active-jobs=2 "
        "-N 4 -c 8 -q day,night -P sun,moon --default-project=moon --max-sched-jobs=6"
    )
    site("flux account add-user --username=di --bank=C --max-nodes=unlimited --max-cores=9 --queues=day --projects=sun")
    cy, di = row(site, "cy"), row(site, "di")
    assert [cy[name] for name in COLUMNS[7:]] == [3, 0.0, 0.25, 1, 2, 4, 8, "day,night", "sun,moon,*", "moon", 6]
    assert [di[name] for name in ("max_nodes", "max_cores", "queues", "projects", "default_project")] == [
        *("unlimited", 9, "day", "sun,*", "sun")
    ]


def test_the_id_of_a_user_with_an_account_is_looked_up(site) -> None:
    site("flux account add-user -u root -B A\nflux account add-user -u no-such-user -B A")
    assert row(site, "root")["userid"] == 0
    assert row(site, "no-such-user")["userid"] == 4294967295


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("add-user -u ann -B A", "add-user: IntegrityError: association ann,A already active in association_table"),
        ("add-user -u ann -B X", "add-user: ValueError: Bank X does not exist in bank_table"),
        ("add-user -u ann -B B", "associations cannot be added to the same parent bank as a sub-bank"),
        ("add-user -u cy -B A -q day,x", "queue x does not exist in queue_table"),
        ("add-user -u cy -B A -P sun,x", "project x does not exist in project_table"),
        ("add-user -u cy -B A --default-project=x", "project x does not exist in project_table"),
        (
            "add-user -u cy -B A --shares=-2",
            "association_table: shares: '-2' is not a whole number from 0 to 2147483647",
        ),
        (
            "add-user -u cy -B A -N 1.5",
            "association_table: max_nodes: '1.5' is not a whole number from 0 to 2147483647",
        ),
        (
            "add-user -u cy -B A -i 4294967296",
            "association_table: userid: '4294967296' is not a whole number from 0 to",
        ),
        ("add-user -u cy -B A --fairshare=1.5", "association_table: fairshare: 1.5 is not a number from 0.0 to 1.0"),
        ("add-user -u cy -B A --fairshare=nan", "association_table: fairshare: nan is not a number from 0.0 to 1.0"),
        ("add-user -u '' -B A", "association_table: username: '' is not a name of 1 to 255 characters"),
        ("view-user zoe", "view-user: ValueError: user zoe not found in association_table"),
        ("view-user ann --fields=shares,x,y", "invalid fields: x, y"),
        ("view-user ann -o {x}", "Invalid column name in format string: x.\nAvailable columns: creation_time,"),
        ("delete-user zoe A", "user zoe not found in association_table under bank A"),
        ("edit-user zoe --shares=2", "user zoe not found in association_table"),
        ("edit-user ann -B C --shares=2", "user ann not found in association_table under bank C"),
        ("edit-user ann", "edit-user: ValueError: no fields provided for update"),
        ("edit-user ann --queues=x", "queue x does not exist in queue_table"),
        ("edit-user ann --projects=x", "project x does not exist in project_table"),
        ("edit-user ann --default-project=x", "project x does not exist in project_table"),
        ("edit-user ann --add-queue=x", "queue x does not exist in queue_table"),
        ("edit-user ann --queues=day --add-queue=night", "cannot specify --queues with --add-queue or --delete-queue"),
        (
            "edit-user ann --add-queue=day --delete-queue=day",
            "cannot pass queue to both --add-queue and --delete-queue",
        ),
        ("edit-user ann --default-bank=C", "user ann not found in association_table under bank C"),
        ("edit-user ann --default-bank=-1", "default bank cannot be reset with -1; please specify a value"),
        ("edit-user ann --userid=-1", "association_table: userid: '-1' is not a whole number"),
        ("edit-all-users", "edit-all-users: ValueError: no fields provided for update"),
        ("edit-all-users --bank=X", "association_table: bank: Bank X does not exist in bank_table"),
        ("edit-all-users --bank=B", "associations cannot be added to the same parent bank as a sub-bank"),
        ("edit-all-users --bank=C", "association_table: bank: user bob is in several banks, which cannot become one"),
        ("list-users --bank=X", "list-users: ValueError: no results found in query"),
        ("list-users --active=yes", "association_table: active: 'yes' is not a whole number from 0 to 1"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(site, data: Database, line: str, text: str) -> None:
    tables = "association_table", "job_usage_factor_table", "job_usage_per_association_table"
    before = [data.rows(f"SELECT * FROM {table}") for table in tables]
    told = site(f"flux account {line}")
    assert told.status == 1
    assert told.text.startswith("flux-account: ERROR: ")
    assert text in told.text
    assert [data.rows(f"SELECT * FROM {table}") for table in tables] == before


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("add-user -B A", "flux-account add-user: error: the following arguments are required: -u/--username"),
        ("add-user -u x", "flux-account add-user: error: the following arguments are required: -B/--bank"),
        ("list-users --foo=bar", "error: unrecognized arguments: --foo=bar"),
        ("view-user ann --fields=shares -J", "argument -J/--job-usage: not allowed with argument --fields"),
    ],
)
def test_a_wrong_command_line_is_refused(site, line: str, text: str) -> None:
    told = site(f"flux account {line}")
    assert told.status == 2
    assert text in told.text


def test_users_are_shown_in_each_form(site) -> None:
    assert site("flux account view-user bob --fields=username,bank,max_nodes").text == (
        '[\n  {\n    "username": "bob",\n    "bank": "A",\n    "max_nodes": "unlimited"\n  },\n'
        '  {\n    "username": "bob",\n    "bank": "C",\n    "max_nodes": "unlimited"\n  }\n]\n'
    )
    assert site("flux account view-user bob --parsable --fields=username,active,bank,max_nodes").text == (
        "username | active | bank | max_nodes\n"
        "---------+--------+------+----------\n"
        "bob      | true   | A    | unlimited\n"
        "bob      | true   | C    | unlimited\n"
    )
    assert site("flux account view-user bob --list-banks").text == "A\nC\n\n"
    assert (
        site("flux account view-user ann -o '{userid:<8} | {bank:<3}|'").text == "userid   | bank|\n1001     | A  |\n"
    )
    assert site("flux account view-user ann --format={active}{max_nodes}").text == "activemax_nodes\n12147483647\n"
    assert (
        site("flux account view-user ann -J --parsable").text.splitlines()[2]
        == "ann      | 1001   | A    | 0      | 0.0  "
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("flux account list-users", ["ann A", "bob A", "bob C", "cy A"]),
        ("flux account list-users -B A", ["ann A", "bob A", "cy A"]),
        ("flux account list-users --bank=A,C", ["ann A", "bob A", "bob C", "cy A"]),
        ("flux account list-users --active=0", ["cy A"]),
        ("flux account list-users --shares=7", ["bob A", "bob C"]),
        ("flux account list-users --max-running-jobs=3", ["ann A"]),
        ("flux account list-users --max-active-jobs=4", ["ann A"]),
        ("flux account list-users --max-nodes=5", ["ann A"]),
        ("flux account list-users --max-nodes=unlimited -B C", ["bob C"]),
        ("flux account list-users --max-cores=6", ["ann A"]),
        ("flux account list-users --max-sched-jobs=8", ["ann A"]),
        ("flux account list-users --queues=night", ["ann A", "bob A"]),
        ("flux account list-users -q day,night", ["ann A", "bob A", "bob C"]),
        ("flux account list-users --projects=sun", ["ann A"]),
        ("flux account list-users -P sun -N 5 -c 6", ["ann A"]),
        ("flux account list-users --default-project=sun", ["ann A"]),
    ],
)
def test_users_are_listed_by_each_filter(site, line: str, found: list[str]) -> None:
    site("""
        flux account edit-user ann --max-running-jobs=3 --max-active-jobs=4 --max-nodes=5 --max-cores=6
        flux account edit-user ann --max-sched-jobs=8 --queues=day,night --projects=sun --default-project=sun
        flux account edit-user bob --shares=7
        flux account edit-user bob --bank=A --queues=night
        flux account edit-user bob --bank=C --queues=day
        flux account add-user -u cy -B A
        flux account delete-user cy A
    """)
    told = site(f"{line} -o '{{username}} {{bank}}'")
    assert told.text.splitlines()[1:] == found


def test_users_are_listed_in_each_form(site) -> None:
    assert site("flux account list-users -f username,bank").text == (
        "username | bank\n---------+-----\nann      | A   \nbob      | A   \nbob      | C   \n"
    )
    listed = site("flux account list-users --json --fields=username --format=''").text
    assert json.loads(listed) == [{"username": name} for name in ("ann", "bob", "bob")]
    assert listed == site("flux account list-users -j --fields=username").text


EDITS = [
    ("flux account edit-user ann --userid=77", {"userid": 77}),
    ("flux account edit-user ann -i 78", {"userid": 78}),
    ("flux account edit-user ann --shares=9", {"shares": 9}),
    ("flux account edit-user ann --fairshare=0.99", {"fairshare": 0.99}),
    ("flux account edit-user ann --max-running-jobs=9", {"max_running_jobs": 9}),
    ("flux account edit-user ann --max-active-jobs=9", {"max_active_jobs": 9}),
    ("flux account edit-user ann --max-nodes=9", {"max_nodes": 9}),
    ("flux account edit-user ann -N 9 -c 10", {"max_nodes": 9, "max_cores": 10}),
    ("flux account edit-user ann --max-cores=9", {"max_cores": 9}),
    ("flux account edit-user ann --queues=day,night", {"queues": "day,night"}),
    ("flux account edit-user ann -q night", {"queues": "night"}),
    ("flux account edit-user ann --queue=day", {"queues": "day"}),
    ("flux account edit-user ann --add-queue=day", {"queues": "day"}),
    ("flux account edit-user ann --projects=sun", {"projects": "sun,*"}),
    (
        "flux account edit-user ann -P sun,moon --default-project=moon",
        {"projects": "sun,moon,*", "default_project": "moon"},
    ),
    ("flux account edit-user ann --max-sched-jobs=9", {"max_sched_jobs": 9}),
]


@sqlite_first
@pytest.mark.parametrize(("line", "changed"), EDITS, ids=[line for line, _ in EDITS])
def test_each_option_of_edit_user_changes_its_column_alone(site, line: str, changed: dict[str, object]) -> None:
    before = row(site)
    assert site(line) == ("", 0)
    after = row(site)
    assert {name: value for name, value in after.items() if value != before[name] and name != "mod_time"} == changed
    if "userid" not in changed:
        resets = " ".join(f"--{name.replace('_', '-')}=-1" for name in changed)
        assert site(f"flux account edit-user ann {resets}") == ("", 0)
        assert {**row(site), "mod_time": 0} == {**before, "mod_time": 0}


def test_a_limit_can_be_unlimited(site) -> None:
    site("flux account edit-user ann -N 3\nflux account edit-user ann -N unlimited --max-running-jobs=unlimited")
    assert (row(site)["max_nodes"], row(site)["max_running_jobs"]) == ("unlimited", "unlimited")


def test_an_edit_is_for_one_bank_or_for_all(site) -> None:
    site("flux account edit-user bob --bank=C --shares=5")
    assert [row(site, "bob", at)["shares"] for at in (0, 1)] == [1, 5]
    site("flux account edit-user bob --shares=6\nflux account edit-user bob -B A --queues=day,night")
    assert [row(site, "bob", at)["shares"] for at in (0, 1)] == [6, 6]
    site("flux account edit-user bob --add-queue=night --delete-queue=day")
    assert [row(site, "bob", at)["queues"] for at in (0, 1)] == ["night", "night"]
    site("flux account edit-user bob --default-bank=C")
    assert [row(site, "bob", at)["default_bank"] for at in (0, 1)] == ["C", "C"]


def test_another_userid_goes_to_the_tables_of_usage_too(site, data: Database) -> None:
    site("flux account edit-user bob --userid=55")
    for table in ("job_usage_factor_table", "job_usage_per_association_table"):
        assert data.rows(f"SELECT DISTINCT userid FROM {table} WHERE username = 'bob'") == [(55,)]


def test_userids_of_usage_that_differ_are_set_right(site, data: Database) -> None:
    data.execute("UPDATE job_usage_factor_table SET userid = 65534 WHERE username = 'ann'")
    assert site("flux account sync-userids") == ("", 0)
    assert data.rows("SELECT username, userid FROM job_usage_factor_table WHERE bank = 'A' ORDER BY rowid") == [
        *(("ann", 1001), ("bob", 1002))
    ]


def test_a_deleted_user_is_inactive_until_added_again(site) -> None:
    site("flux account edit-user ann --shares=9\nflux account delete-user ann A")
    assert row(site)["active"] == 0
    site("flux account add-user -u ann -B A")
    assert (row(site)["active"], row(site)["shares"]) == (1, 9)


def test_a_user_who_is_deleted_by_force_is_gone_but_keeps_the_usage(site, data: Database) -> None:
    data.execute("UPDATE job_usage_per_association_table SET value = 5.0 WHERE username = 'ann' AND period = 0")
    site("flux account delete-user ann A --force")
    assert site("flux account view-user ann").status == 1
    site("flux account add-user -u ann -B A -i 1001")
    assert data.rows("SELECT value FROM job_usage_per_association_table WHERE username = 'ann' AND period = 0") == [
        (5.0,)
    ]


@pytest.mark.parametrize("force", ["", "--force"])
def test_the_default_bank_moves_to_the_oldest_active_one(site, data: Database, force: str) -> None:
    site("flux account add-bank --parent-bank=root D 1\nflux account add-user -u bob -B D")
    data.execute("UPDATE association_table SET creation_time = 5 WHERE bank = 'D'")
    site(f"flux account delete-user bob A {force}")
    assert data.rows("SELECT DISTINCT default_bank FROM association_table WHERE username = 'bob'") == [("D",)]
    # A bank that is not the default changes nothing.
    site(f"flux account delete-user bob C {force}")
    assert data.rows("SELECT DISTINCT default_bank FROM association_table WHERE username = 'bob'") == [("D",)]


def test_all_users_are_edited_at_once(site, data: Database) -> None:
    site(
        "flux account edit-all-users --shares=2 --fairshare=0.75 --max-running-jobs=3 --max-active-jobs=4 "
        "--max-nodes=5 --max-cores=6 --queues=day --projects=sun --default-project=sun --max-sched-jobs=7"
    )
    columns = ", ".join(COLUMNS[7:8] + COLUMNS[9:])
    assert set(data.rows(f"SELECT {columns} FROM association_table")) == {
        (2, 0.75, 3, 4, 5, 6, "day", "sun,*", "sun", 7)
    }
    site("flux account edit-all-users --shares=-1 --max-nodes=-1 --queues=-1 --projects=-1 --default-project=-1")
    assert set(data.rows("SELECT shares, max_nodes, queues, projects, default_project FROM association_table")) == {
        (1, 2147483647, "", "*", "*")
    }


def test_all_users_are_moved_to_a_bank_with_their_usage(site, data: Database) -> None:
    site("flux account delete-user bob C --force\nflux account edit-all-users --bank=C --default-bank=C")
    for table in ("association_table", "job_usage_factor_table"):
        assert data.rows(f"SELECT username, bank FROM {table} ORDER BY username") == [("ann", "C"), ("bob", "C")]
    assert data.rows("SELECT count(*) FROM job_usage_per_association_table WHERE bank = 'C'") == [(8,)]
    assert data.rows("SELECT DISTINCT default_bank FROM association_table") == [("C",)]
