"""Commands about jobs that have ended and their usage, and the programs that compute usage and fair share."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from accounting_databases import only_sqlite, sqlite_first
from engine.accounting.instance_stand_in import Instance
from headrace.cli.account import priority_update
from headrace.engine.accounting import database, priorities, service
from headrace.engine.accounting.follow import Settings
from headrace.storage.database import Database

DAY = 86400.0
# 2025-01-01 in UTC.
NEW_YEAR = 1735689600.0

# id, userid, bank, project, nodes, submitted, started, ended, requested seconds
JOBS = (
    (101, 1001, "A", "sun", 2, 0.0, 10.0, 70.0, 100.0),
    (102, 1001, "A", "moon", 1, 0.0, 10.0, 130.0, 120.0),
    (103, 1002, "A", "sun", 4, 50.0, 100.0, 160.0, 0.0),
    (104, 1002, "C", "sun", 1, 50.0, 100.0, 150.0, 0.0),
    (105, 1002, "", "", 1, 50.0, 100.0, 150.0, 0.0),
)


def add_jobs(data: Database, start: float = NEW_YEAR) -> None:
    for id, userid, bank, project, nodes, submitted, started, ended, requested in JOBS:
        lite = [{"rank": f"0-{nodes - 1}" if nodes > 1 else "0", "children": {"core": "0-3", "gpu": "0-1"}}]
        row = {
            "id": str(id),
            "userid": userid,
            "t_submit": start + submitted,
            "t_run": start + started,
            "t_inactive": start + ended,
            "ranks": "0",
            "R": json.dumps({"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}}),
            "jobspec": "{}",
            "project": project,
            "bank": bank,
            "requested_duration": requested,
            "actual_duration": ended - started,
        }
        database.insert(data, "jobs", row)


@pytest.fixture
def used(site, data: Database):
    """`site` with JOBS, and a job whose R cannot be read."""
    add_jobs(data)
    data.execute(
        "INSERT INTO jobs SELECT '106', userid, 0, 0, 9, '', 'x', '{}', '', 'A', 0, 9 FROM jobs WHERE id = '101'"
    )
    return site


def ids(text: str) -> list[int]:
    return [int(line) for line in text.split()[1:]]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("flux account view-job-records", [101, 102, 103, 104, 105]),
        ("flux account view-job-records --user=ann", [101, 102]),
        ("flux account view-job-records --user=zoe", []),
        ("flux account view-job-records --user=bob --bank=C", [104]),
        ("flux account view-job-records --project=moon", [102]),
        ("flux account view-job-records --jobid=103", [103]),
        ("flux account view-job-records --jobid=f2k", [101]),
        ("flux account view-job-records --after-start-time=1735689610", [103, 104, 105]),
        ("flux account view-job-records --before-end-time=1735689750", [101, 102]),
        ("flux account view-job-records --before-end-time='2025-06-01'", [101, 102, 103, 104, 105]),
        ("flux account view-job-records --requested-duration '< 110' '> 0'", [101]),
        ("flux account view-job-records --actual-duration '>= 60'", [101, 102, 103]),
        ("flux account view-job-records --duration-delta '= 40'", [101]),
        ("flux account view-job-records --duration-delta '= 0'", [102]),
    ],
)
def test_records_are_chosen_by_each_option(used, line: str, found: list[int]) -> None:
    assert ids(used(f"{line} -o '{{jobid.dec}}'").text) == found


def test_records_are_chosen_by_cluster(used, data: Database) -> None:
    shown = used("flux account view-job-records --cluster=north -o '{cluster}'")
    if not data.is_postgresql:
        assert shown.status == 1 and "cluster: a database in SQLite has the jobs of one instance" in shown.text
        assert used("flux account view-job-records --jobid=101 -o '{cluster:>1}|'").text.split() == ["cluster|", "|"]
        return
    assert shown.text.split() == ["cluster"]
    data.execute("UPDATE jobs SET cluster = 'north' WHERE id = '101'")
    shown = used("flux account view-job-records --cluster=north -o '{cluster}:{jobid.dec}'")
    assert shown.text.split() == ["cluster:jobid.dec", "north:101"]


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("view-job-records -o '{foo}'", "view-job-records: ValueError: Unknown format field: foo"),
        ("view-job-records -o '{bank:<999999999}'", "a column has at most 10000 characters"),
        ("view-job-records --actual-duration '<60'", "expression expects one operator and one value"),
        ("view-job-records --actual-duration '! 60'", "expression must start with <, <=, =, >=, or >"),
        ("view-job-records --actual-duration '< x'", "expression expects to be compared with a number"),
        ("view-job-records --jobid=x!", "x!"),
        ("view-job-records --after-start-time=soon", 'Invalid datetime: "soon"'),
        ("view-usage-report --time-unit=day", "invalid choice: 'day'"),
        ("view-usage-report --job-size-bins=1,x", "must be numbers separated by commas"),
        ("clear-usage X", "clear-usage: ValueError: bank X not found in bank_table"),
        ("clear-usage A --ignore-older-than=soon", "soon"),
        ("show-usage users", "invalid choice: 'users'"),
        ("scrub-old-jobs many", "invalid int value: 'many'"),
        ("scrub-old-jobs -- -1", "-1 is not a number of weeks"),
        ("jobs zoe", "jobs: ValueError: could not find entry for zoe in association_table"),
        ("jobs ann --bank=B", "could not find entry for ann in association_table"),
        ("jobs ann --since=3025-01-01", "--since appears to be in the future: 3"),
        ("report --from=soon", 'Invalid datetime: "soon"'),
        ("report --from=2025-01-02 --to=2025-01-01", "must be after the start"),
    ],
)
def test_what_is_wrong_is_refused(used, line: str, text: str) -> None:
    done = used(f"flux account {line}")
    assert text in done.text and done.status


def test_the_default_listing_has_columns_as_wide_as_their_values(used) -> None:
    head, first, *_ = used("flux account view-job-records").text.splitlines()
    assert re.sub(" +", " ", head).strip() == (
        "jobid | username | userid | t_submit | t_run | t_inactive | nnodes | project | bank | requested_duration"
        " | actual_duration | duration_delta"
    )
    assert first.split("|")[3:6] == [" 1735689600.00 ", " 1735689610.00 ", " 1735689670.00 "]
    assert [word.strip() for word in first.split("|")[6:]] == ["2", "sun", "A", "100.00", "60.00", "40.00"]
    assert (
        used("flux account view-job-records --user=ann -o '{jobid} {username:>5} {resources:.9}'")
        .text.splitlines()[1]
        .startswith('ƒ2k  1001 {"version')
    )


def test_usage_is_added_up_by_bank_user_size_and_unit(used) -> None:
    lines = used("flux account view-usage-report --start=2024-12-31 --end=2025-01-03").text.split("\n")[:-2]
    assert [line.split() for line in lines] == [
        ["association(nodesec)", "total"],
        *(["A:1001", "240.00"], ["A:1002", "240.00"], ["C:1002", "50.00"], ["TOTAL", "530.00"]),
    ]
    lines = used("flux account view-usage-report -s 2024-12-31 -e 2025-01-03 -r bybank -t min -S 1,2,4").text.split(
        "\n"
    )[:-2]
    assert [line.split() for line in lines] == [
        ["bank(nodemin)", "1+", "2+", "4+"],
        *(["A", "2.00", "2.00", "4.00"], ["C", "0.83", "0.00", "0.00"], ["TOTAL", "2.83", "2.00", "4.00"]),
    ]
    assert "290.00" in used("flux account view-usage-report -s 2024-12-31 -e 2025-01-03 -r byuser -u bob").text
    assert "50.00" in used("flux account view-usage-report -s 2024-12-31 -e 2025-01-03 --bank=C").text
    assert "TOTAL                              0.00" in used("flux account view-usage-report").text


def test_update_usage_books_jobs_once_and_ends_periods(used, data: Database) -> None:
    for statement in (
        "UPDATE config_table SET value = '100000' WHERE key = 'priority_decay_half_life'",
        f"UPDATE t_half_life_period_table SET end_half_life_period = {NEW_YEAR}",
        "UPDATE job_usage_per_association_table SET value = 1000 WHERE username = 'ann' AND period = 0",
    ):
        data.execute(statement)
    program = "flux account-update-usage -p accounting.db"
    done = used(f"{program} -v")
    assert "INFO: beginning job-usage update" in done.text and "update for flux-accounting DB now complete" in done.text
    # All periods have ended long ago, and the jobs are booked into the present one.
    usage = dict(data.rows("SELECT username || bank, job_usage FROM association_table"))
    assert usage == {"annA": 240.0, "bobA": 240.0, "bobC": 50.0}
    assert dict(data.rows("SELECT bank, job_usage FROM bank_table")) == {
        "root": 530.0,
        "A": 480.0,
        "B": 50.0,
        "C": 50.0,
    }
    assert used(program).status == 0
    assert dict(data.rows("SELECT username || bank, job_usage FROM association_table")) == usage
    data.execute("UPDATE t_half_life_period_table SET end_half_life_period = end_half_life_period - 200000")
    used(program)
    found = data.rows(
        "SELECT period, value FROM job_usage_per_association_table WHERE username = 'ann' ORDER BY period"
    )
    assert [value for _, value in found][:3] == [0.0, 0.0, 60.0]
    assert data.rows("SELECT job_usage FROM association_table WHERE username = 'ann'") == [(60.0,)]


def test_weights_count_cores_and_gpus_over_all_nodes(used, data: Database) -> None:
    used(
        """flux account edit-config node_weight=1 core_weight=10 gpu_weight=100
        flux account-update-usage -p accounting.db"""
    )
    ((ann,),) = data.rows("SELECT job_usage FROM association_table WHERE username = 'ann'")
    assert ann == (2 + 80 + 400) * 60 + (1 + 40 + 200) * 120


@pytest.mark.parametrize("value", ["x", "-1"])
def test_a_setting_that_is_no_number_is_named(used, data: Database, value: str) -> None:
    data.execute("UPDATE config_table SET value = :value WHERE key = 'priority_decay_half_life'", {"value": value})
    done = used("flux account-update-usage -p accounting.db")
    assert done.status == 1 and "config_table: priority_decay_half_life" in done.text


def test_cleared_usage_is_0_for_a_bank_its_users_and_those_above(used, data: Database) -> None:
    used(
        """flux account-update-usage -p accounting.db
        flux account-update-fshare -p accounting.db
        flux account clear-usage C"""
    )
    assert dict(data.rows("SELECT bank, job_usage FROM bank_table")) == {"root": 480.0, "A": 480.0, "B": 0.0, "C": 0.0}
    assert data.rows("SELECT job_usage, fairshare FROM association_table WHERE bank = 'C'") == [(0.0, 0.5)]
    used("flux account-update-usage -p accounting.db")
    assert data.rows("SELECT job_usage FROM bank_table WHERE bank = 'C'") == [(0.0,)]
    used(
        """flux account clear-usage A C --ignore-older-than=2025-01-01
        flux account-update-usage -p accounting.db"""
    )
    assert data.rows("SELECT ignore_older_than > 0, job_usage FROM bank_table WHERE bank = 'C'") == [(1, 50.0)]


def test_fair_share_follows_from_shares_and_usage(used, data: Database) -> None:
    used(
        """flux account-update-usage -p accounting.db
        flux account edit-user ann --shares=3
        flux account-update-fshare -p accounting.db"""
    )
    found = dict(data.rows("SELECT username || bank, fairshare FROM association_table"))
    assert found == {"bobC": 1.0, "annA": 0.666667, "bobA": 0.333333}


def test_a_table_that_is_no_tree_is_named_and_nothing_changes(used, data: Database) -> None:
    data.execute("UPDATE bank_table SET parent_bank = 'C' WHERE bank = 'B'")
    done = used("flux account-update-fshare -p accounting.db")
    assert done.status == 1 and 'bank_table: bank "B": parent_bank: a cycle' in done.text
    assert {row[0] for row in data.rows("SELECT fairshare FROM association_table")} == {0.5}


@only_sqlite
@pytest.mark.parametrize("program", ["update-usage", "update-fshare"])
def test_a_database_that_is_not_there_is_named(run, program: str) -> None:
    done = run(f"flux account-{program} -p none.db")
    assert done.status and "error opening DB: unable to open database file none.db" in done.text


def test_jobs_of_another_database_are_copied(used, data: Database, tmp_path: Path, monkeypatch) -> None:
    old = sqlite3.connect(tmp_path / "old.db")
    old.execute("CREATE TABLE jobs (id, userid, t_submit, t_run, t_inactive, ranks, R, jobspec)")
    old.executemany("INSERT INTO jobs VALUES (?, 7, 1, 2, 3, '0', ?, '{}')", [("900", "{}"), ("901", "")])
    old.commit()
    monkeypatch.setenv("FLUX_URI", f"local://{tmp_path}/none")
    # Without an instance there are no further jobs.
    assert used("flux account-fetch-job-records -p accounting.db -c old.db").status == 1
    assert data.rows("SELECT userid FROM jobs WHERE id IN ('900', '901')") == [(7,)]


def test_old_records_are_deleted(used, data: Database) -> None:
    used("flux account scrub-old-jobs")
    assert data.rows("SELECT count(*) FROM jobs") == [(0,)]


def test_usage_is_shown_as_bars(used) -> None:
    used("flux account-update-usage -p accounting.db")
    lines = used("flux account show-usage banks").text.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [("A", "480.00"), ("B", "50.00"), ("C", "50.00")]
    assert lines[0].count("█") > 8 * lines[1].count("█") > 0
    assert len(used("flux account show-usage associations --limit=2").text.splitlines()) == 2


def test_the_report_has_shares_usage_and_waits(used, tmp_path: Path) -> None:
    text = used("flux account report --from=2024-12-31 --to=2025-01-02").text
    assert re.search(r"^ A +\| 66\.7 % +\| 90\.6 % +\| 0\.13 +\| 3", text, re.MULTILINE)
    assert re.search(r"^C +\| 1 +\| 50 s", text, re.MULTILINE)
    assert used("flux account report --from=2024-12-31 --to=2025-01-02 --html=report.html").text == ""
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 4 and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert '<th scope="row">ann</th><td>45.3 %</td>' in page
    found = json.loads(used("flux account report --from=2024-12-31 --to=2025-01-02 --json").text)
    assert {bank["bank"]: bank["jobs"] for bank in found["banks"]}["A"] == 3
    assert found["usage"] == sum(sum(values) for _, values in found["over_time"])


@only_sqlite
@pytest.mark.parametrize("program", ["update-usage", "update-fshare"])
def test_a_file_that_is_locked_or_no_database_is_named(used, data: Database, tmp_path: Path, program: str) -> None:
    (tmp_path / "text.db").write_text("hello, I am no database\n" * 100)
    done = used(f"flux account-{program} -p text.db")
    assert done.status == 1 and "file is not a database" in done.text
    with data.transaction(locked=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_LOCK_TIMEOUT", 0.01)
        done = used(f"flux account-{program} -p accounting.db")
    assert done.status == 1 and "accounting.db: database is locked" in done.text


JOB: dict[str, Any] = {
    "id": 101,
    "userid": 1001,
    "bank": "A",
    "queue": "day",
    "urgency": 17,
    "priority": 51000,
    "annotations": {"user": {"fairshare": 0.5}},
}


class Listing:
    """Answers for jobs, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []

    def __call__(self) -> Listing:
        return self

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_exc: object) -> None:
        pass

    def stream(self, topic: str, body: Any) -> list[Any]:
        self.requests.append((topic, body))
        return [{"jobs": [JOB, {**JOB, "id": 102, "bank": "C", "annotations": {}}]}]

    def rpc(self, topic: str, body: Any) -> Listing:
        self.requests.append((topic, body))
        return self

    def get(self) -> Any:
        return {"job": JOB}


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    made = Listing()
    monkeypatch.setattr(priorities, "Handle", made)
    return made


def test_jobs_have_the_terms_of_their_priorities(site, listing: Listing) -> None:
    site("flux account edit-bank A --priority=2.5")
    lines = site("flux account jobs ann").text.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "JOBID USER BANK BANKPRIO BANKFACT QUEUE QPRIO QFACT FAIRSHARE FSFACTOR URGENCY URGFACT PRIORITY",
        "ƒ2k 1001 A 2.5 0 day 0 10000 0.5 100000 17 1000 51000",
        "ƒ2m 1001 C 0.0 0 day 0 10000 100000 17 1000 51000",
    ]
    assert len(site("flux account jobs bob --bank=C").text.splitlines()) == 2
    assert site("flux account jobs ann --format='{BANK:<3}{PRIORITY}'").text == "BANKPRIORITY\nA  51000\nC  51000\n"
    sums = site("flux account jobs ann --jobids 101 --verbose").text.splitlines()
    assert sums[2:] == [
        "= (0.5 * 100000) + (0 * 10000) + (2.5 * 0) + (1000 * (17 - 16))",
        *("= 50000.0 + 0 + 0.0 + 1000", "= 51000", ""),
    ]
    assert listing.requests[-1] == ("job-list.list-id", {"id": 101, "attrs": listing.requests[-1][1]["attrs"]})


def test_jobs_are_asked_for_by_user_queue_state_number_and_time(site, listing: Listing) -> None:
    site("flux account jobs ann --queue=day --filter=pending --count=5 --since=2025-01-01")
    (_, body) = listing.requests[-1]
    assert body["constraint"]["and"][:2] == [{"userid": [1001]}, {"queue": ["day"]}]
    assert (body["max_entries"], body["since"] > 1.7e9) == (5, True)
    site("flux account jobs ann")
    (_, body) = listing.requests[-1]
    assert (body["max_entries"], body["since"]) == (0, 0.0)
    assert "Invalid filter specified: foo" in site("flux account jobs ann --filter=foo").text


@only_sqlite
def test_the_tables_are_sent_to_the_policy_and_an_old_database_is_updated_first(
    site, data: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance()
    monkeypatch.setattr(priority_update, "Handle", lambda: instance)
    data.execute("PRAGMA user_version = 37")
    done = site("flux account-priority-update -p accounting.db")
    assert "flux-accounting database out of date; updating DB with 'flux account-update-db'" in done.text
    assert done.status == 0 and data.rows("PRAGMA user_version") == [(38,)]
    names = [name for name, _ in instance.pushed]
    assert names == [
        *("rec_update", "rec_q_update", "rec_proj_update", "rec_bank_update", "rec_fac_update", "rec_config_update"),
        *("reprioritize", "rec_update"),
    ]
    assert [(row["userid"], row["bank"]) for row in instance.pushed[0][1]] == [(1001, "A"), (1002, "A"), (1002, "C")]
    # The instance owner has an association in a bank of the owner's name.
    ((owner,),) = [rows for _, rows in instance.pushed[-1:]]
    assert (owner["userid"], owner["bank"], owner["max_running_jobs"]) == (0, "root", 1000000)


@only_sqlite
@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("flux account-service --follow", Settings(60.0, False)),
        ("flux account-service --follow --interval=2m --count-running", Settings(120.0, True)),
        ("flux account-service --follow --interval=0", Settings(0.0, False)),
        ("flux account-service --count-running", None),
    ],
)
def test_the_service_follows_its_instance_if_asked(run, monkeypatch, line: str, settings: Settings | None) -> None:
    served = []
    monkeypatch.setattr(service, "serve", lambda *given: served.append(given) or 0)
    assert run(f"{line} -p x.db").status == 0
    assert served == [("x.db", False, settings, database.DEFAULT_ACCESS)]
    line = "flux account-service --follow -p postgresql://ann@db/site --password-file=secret --cluster=north"
    assert run(line).status == 0
    assert served[1:] == [("postgresql://ann@db/site", False, Settings(), database.Access("secret", "north"))]
    assert "--interval" in run("flux account-service --follow --interval=soon").text
