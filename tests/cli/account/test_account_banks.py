"""`flux account` about banks: each option is shown by its effect, each rule of the table by what it refuses."""

from __future__ import annotations

import json
import os
import pwd

import pytest

from accounting_databases import sqlite_first
from headrace.storage.database import Database


def bank(run, name):
    return json.loads(run(f"flux account view-bank {name}").text)[0]


def test_a_bank_has_its_options_in_its_columns(site) -> None:
    assert bank(site, "C") == {
        "bank_id": 4, "bank": "C", "active": 1, "parent_bank": "B", "shares": 1, "job_usage": 0.0, "priority": 0.0,
        "ignore_older_than": 0,
    }  # fmt: skip
    site("flux account add-bank --parent-bank=root --priority=1000.567 --ignore-older-than=1700000000 D 7")
    assert [bank(site, "D")[name] for name in ("shares", "priority", "ignore_older_than")] == [7, 1000.567, 1700000000]
    site("flux account add-bank --parent-bank=root --ignore-older-than='2025-01-01 08:00:00' E 7")
    assert bank(site, "E")["ignore_older_than"] > 1700000000


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("add-bank other 1", "add-bank: ValueError: bank_table already has a root bank"),
        ("add-bank --parent-bank=X D 1", "parent bank X not found in bank table"),
        ("add-bank --parent-bank=A D 1", "banks cannot be added to a bank that currently has associations in it"),
        ("add-bank --parent-bank=root A 1", "add-bank: IntegrityError: bank A already exists in bank_table"),
        ("add-bank --parent-bank=B A 1", "bank A already exists in bank_table"),
        ("add-bank --parent-bank=root D -3", "bank_table: shares: '-3' is not a whole number from 0 to 2147483647"),
        ("add-bank --parent-bank=root D 2147483648", "bank_table: shares: '2147483648' is not a whole number"),
        ("add-bank --parent-bank=root --priority=inf D 1", "bank_table: priority: inf is not a number from"),
        ("add-bank --parent-bank=root --ignore-older-than=soon D 1", "soon"),
        ("view-bank X", "view-bank: ValueError: bank X not found in bank_table"),
        ("view-bank root --tree --fields=bank", "tree option does not support custom formatting"),
        ("view-bank root --parsable", "-P/--parsable can only be passed with -t/--tree"),
        ("view-bank root --fields=bank,x", "invalid fields: x"),
        ("list-banks --fields=bank,x", "invalid fields: x"),
        ("delete-bank X", "bank X not found in bank_table"),
        ("edit-bank X --shares=1", "bank X not found in bank_table"),
        ("edit-bank C --shares=-1000", "new shares amount must be > 0"),
        ("edit-bank C --shares=0", "new shares amount must be > 0"),
        ("edit-bank C --shares=x", "bank_table: shares: 'x' is not a whole number"),
        ("edit-bank C --parent-bank=X", "parent bank X not found in bank table"),
        ("edit-bank C --parent-bank=A", "banks cannot be added to a bank that currently has associations in it"),
        ("edit-bank B --parent-bank=B", "bank_table: parent_bank: B is below B, the banks would form a circle"),
        ("edit-bank root --parent-bank=B", "bank_table: parent_bank: root is the root bank, which has no parent"),
        ("edit-bank C --parent-bank=''", "bank_table already has a root bank"),
        ("bank-info -t X", 'bank-info: ValueError: Could not find "X"'),
        ("bank-info -u zoe", 'Could not find "zoe"'),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(site, data: Database, line: str, text: str) -> None:
    before = data.rows("SELECT * FROM bank_table")
    told = site(f"flux account {line}")
    assert told.status == 1
    assert text in told.text
    assert data.rows("SELECT * FROM bank_table") == before


def test_a_bank_is_not_moved_below_itself(site) -> None:
    site("flux account delete-user bob C --force\nflux account add-bank --parent-bank=C D 1")
    assert "parent_bank: D is below B" in site("flux account edit-bank B --parent-bank=D").text


def test_each_option_of_edit_bank_changes_its_column(site) -> None:
    site("flux account edit-bank C --shares=50 --priority=5000 --ignore-older-than=5 --parent-bank=root")
    assert [bank(site, "C")[name] for name in ("shares", "priority", "ignore_older_than", "parent_bank")] == [
        *(50, 5000.0, 5, "root")
    ]


def test_usage_follows_a_bank_to_its_new_parent(site, data: Database) -> None:
    data.execute("UPDATE association_table SET job_usage = 8.0 WHERE username = 'bob'")
    site("flux account edit-bank C --parent-bank=root")
    assert data.rows("SELECT bank, job_usage FROM bank_table ORDER BY bank") == [
        *(("A", 8.0), ("B", 0.0), ("C", 8.0), ("root", 16.0))
    ]


def test_banks_are_listed_in_each_form(site) -> None:
    site("flux account delete-bank B")
    assert site("flux account list-banks --fields=bank,parent_bank").text == (
        "bank | parent_bank\n-----+------------\nroot |            \nA    | root       \n"
    )
    everything = json.loads(site("flux account list-banks --inactive --json").text)
    assert [(each["bank"], each["active"]) for each in everything] == [("root", 1), ("A", 1), ("B", 0), ("C", 0)]
    assert (
        site("flux account list-banks -o '{bank:<5}|{shares:>6}'").text == "bank |shares\nroot |     1\nA    |     2\n"
    )


TREE = """
Bank  Username  Active  RawShares  RawUsage  Fairshare
root  true  1  12.35
A  true  2  12.3456
A  ann  true  1  12.3456  0.5
A  bob  false  1  0.0  0.5
B  true  1  0.0
C  true  1  0.0
C  bob  true  1  0.0  0.5
"""


@pytest.fixture
def used(site, data: Database):
    """`site` where ann has usage and bob is inactive in A."""
    site("flux account delete-user bob A")
    data.execute("UPDATE association_table SET job_usage = 12.3456 WHERE username = 'ann'")
    data.execute("UPDATE bank_table SET job_usage = 12.3456 WHERE bank IN ('root', 'A')")
    return site


def test_a_tree_is_a_level_further_in_for_each_bank(used) -> None:
    told = used("flux account view-bank root -t").text
    assert [line.split() for line in told.splitlines()] == [line.split() for line in TREE[1:].splitlines()] + [[]]
    widths = [len(line) for line in told.splitlines() if line]
    assert widths == [120, 100, 100, 120, 120, 100, 100, 120]
    assert told.splitlines()[3].startswith("  A  ")
    assert used("flux account view-bank root --tree --concise").text.count("bob") == 0
    assert used("flux account view-bank root -t -c").text.count("ann") == 1
    assert used("flux account view-bank A -t --active").text.count("bob") == 0
    assert used("flux account view-bank A -t -A").text.count("ann") == 1
    assert used("flux account view-bank B --tree -P").text == (
        "Bank|Username|Active|RawShares|RawUsage|Fairshare\nB||true|1|0.0\n C||true|1|0.0\n  C|bob|true|1|0.0|0.5\n\n"
    )
    assert used("flux account view-bank A --parsable --tree").text.splitlines()[1] == "A||true|2|12.35"


def test_a_bank_is_shown_with_its_users(used) -> None:
    assert used("flux account view-bank A -u --fields=bank").text == (
        "bank\n----\nA   \n\n"
        "username | active | default_bank | shares | job_usage | fairshare\n"
        "---------+--------+--------------+--------+-----------+----------\n"
        "ann      | true   | A            | 1      | 12.3456   | 0.5      \n"
        "bob      | false  | C            | 1      | 0.0       | 0.5      \n"
    )
    assert "bob" not in used("flux account view-bank A --users -A").text
    assert used("flux account view-bank B --users").text.endswith("\n\nno users under B\n")
    assert used("flux account view-bank A --format={bank}").text == "bank\nA\n"


def test_a_deleted_bank_is_inactive_with_everything_below_it(site, data: Database) -> None:
    assert site("flux account delete-bank B") == ("", 0)
    assert data.rows("SELECT bank FROM bank_table WHERE active = 0") == [("B",), ("C",)]
    assert data.rows("SELECT username, bank, active, default_bank FROM association_table") == [
        *(("ann", "A", 1, "A"), ("bob", "A", 1, "A"), ("bob", "C", 0, "A"))
    ]
    site("flux account add-bank --parent-bank=root B 1")
    assert data.rows("SELECT bank FROM bank_table WHERE active = 0") == [("C",)]


def test_a_bank_that_is_deleted_by_force_takes_its_usage_along(used, data: Database) -> None:
    used("flux account delete-bank A --force")
    assert data.rows("SELECT bank, job_usage FROM bank_table ORDER BY rowid") == [
        *(("root", 0.0), ("B", 0.0), ("C", 0.0))
    ]
    assert data.rows("SELECT username, bank, default_bank FROM association_table") == [("bob", "C", "C")]
    assert used("flux account delete-bank root --force") == ("", 0)
    assert data.rows("SELECT count(*) FROM bank_table") == [(0,)]
    assert "No root bank found in bank_table" in used("flux account bank-info -u bob").text


def test_coordinators_are_added_listed_and_deleted(site) -> None:
    assert site("flux account add-coordinator ann B") == ("", 0)
    assert site("flux account list-coordinators").text == "username | bank\n---------+-----\nann      | B   \n"
    assert site("flux account list-coordinators --format={username}:{bank}").text == "username:bank\nann:B\n"
    assert json.loads(site("flux account list-coordinators --json").text) == [{"username": "ann", "bank": "B"}]
    assert site("flux account delete-coordinator ann B") == ("", 0)
    assert site("flux account list-coordinators").status == 1


def test_bank_info_shows_parts_of_the_whole(used) -> None:
    assert used("flux account bank-info -t root").text == (
        "Name                     Shares  Norm Shares   Norm Usage   Level FS\n"
        "root                          1     1.000000     1.000000        inf\n"
        " A                            2     0.666667     1.000000         --\n"
        "   ann                        1     0.333333     1.000000      0.500\n"
        "   bob                        1     0.333333     0.000000      0.500\n"
        " B                            1     0.333333     0.000000         --\n"
        "  C                           1     0.333333     0.000000         --\n"
        "    bob                       1     0.333333     0.000000      0.500\n"
    )
    assert used("flux account bank-info --tree-no-users=B --noheader -P").text == (
        " B|1|0.333333|0.000000|--\n  C|1|0.333333|0.000000|--\n"
    )
    assert used("flux account bank-info --to-root=C -n --parsable --verbose").text == (
        "root|1|1.000000|12.3|1.000000|inf|Bank\n B|1|0.333333|0.0|0.000000|nan|Bank\n"
        "  C|1|0.333333|0.0|0.000000|nan|Bank\n"
    )
    assert used("flux account bank-info -v -u bob -x A").text == (
        "Name                     Shares  Norm Shares         Usage   Norm Usage   Level FS  Type\n"
        "root                          1     1.000000          12.3     1.000000        inf  Bank\n"
        " B                            1     0.333333           0.0     0.000000         --  Bank\n"
        "  C*                          1     0.333333           0.0     0.000000         --  Bank\n"
        "    bob                       1     0.333333           0.0     0.000000      0.500  User\n"
    )
    assert used("flux account bank-info --user=ann --exclude=A -n").text == ""
    assert used("flux account bank-info -r A -n -P").text == "root|1|1.000000|1.000000|inf\n A|2|0.666667|1.000000|--\n"


def test_bank_info_is_about_the_caller_without_a_name(used, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert 'Could not find "root"' in used("flux account bank-info").text
    used("flux account edit-bank root --shares=5\nflux account add-user -u daemon -i 1 -B A")
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam("daemon").pw_uid)
    assert "   daemon|1|0.222222|0.000000|0.500" in used("flux account bank-info -n -P").text
