"""The module accounting in real instances: it books what jobs used, whatever is killed, and fills the policy."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster, cluster, until
from instance import processes_with

import seeds
from headrace.engine.accounting import database, users
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.job_state import DEPEND, SCHED
from headrace.storage.database import Database
from headrace.wire.query import signing
from sizes import size

USERS = {1001: ("ann", "A"), 1002: ("bob", "B")}


@contextlib.contextmanager
def site(tmp_path: Path) -> Iterator[tuple[Cluster, Database]]:
    """An instance with a statedir, the policy and the module, and its database: banks A and B with a user each."""
    path = tmp_path / "site.db"
    database.create(str(path))
    with contextlib.closing(database.opened(str(path))) as data, cluster(1, f"statedir={tmp_path}/state") as brokers:
        for bank, parent, shares in (("root", "", 1), ("A", "root", 3), ("B", "root", 1)):
            database.insert(data, "bank_table", {"bank": bank, "parent_bank": parent, "shares": shares})
        for userid, (name, bank) in USERS.items():
            row = {"creation_time": 0, "username": name, "userid": userid, "bank": bank, "default_bank": bank}
            database.insert(data, "association_table", {**row, "max_running_jobs": 9999, "max_active_jobs": 9999})
            users.add_usage(data, name, userid, bank)
        with open(brokers.config, "a") as config:
            config.write(
                f'[accounting]\ndatabase = "{path}"\ninterval = 0.2\n'
                '[job-manager]\nplugins = [{load = "mf_priority.so"}]\n'
                "[exec.testexec]\nallow-guests = true\n"
            )
        yield brokers, data


def program(brokers: Cluster) -> int:
    """The process of the module's program; 0 if it does not run."""
    found = [line for line in processes_with(f"HR_TEST={brokers.folder}") if "account-service" in line]
    return int(found[0].split()[0]) if found else 0


def submit(
    brokers: Cluster, userid: int, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.01, number: int = 1
) -> None:
    """Submit simulated jobs in the name of a user."""
    monkeypatch.setenv("FLUX_HANDLE_USERID", str(userid))
    spec = jobspec_build.from_command(["hostname"])
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": f"{seconds}s"}}
    with brokers.handle() as handle:
        body = {"J": signing.sign(json.dumps(spec), userid), "urgency": 16, "flags": 0}
        for call in [handle.rpc("job-ingest.submit", body) for _ in range(number)]:
            call.get()


def ended(brokers: Cluster) -> list[dict[str, Any]]:
    """All jobs, which have ended."""
    attributes = ["userid", "t_run", "t_inactive", "nnodes", "state"]
    with brokers.handle() as handle:
        handle.rpc("job-manager.drain").get()
        answers = handle.stream("job-list.list", {"max_entries": 0, "attrs": attributes})
        return [job for answer in answers for job in answer["jobs"]]


def usages(data: Database) -> dict[str, float]:
    found = data.rows("SELECT username, job_usage FROM association_table UNION SELECT bank, job_usage FROM bank_table")
    return {name: usage for name, usage in found}


@pytest.mark.soak
def test_every_job_is_booked_once_whatever_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seeds.seed())
    with site(tmp_path) as (brokers, data):
        brokers.lead()
        until(lambda: program(brokers), "the program runs")
        for _ in range(size("book_kills")):
            for _ in range(dice.randint(3, 12)):
                submit(brokers, dice.choice(sorted(USERS)), monkeypatch, dice.choice((0.01, 0.05)))
            monkeypatch.delenv("FLUX_HANDLE_USERID")
            if dice.random() < 0.6:
                until(lambda: program(brokers), "the program runs")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(program(brokers), signal.SIGKILL)
            else:
                os.kill(brokers.pid(0), signal.SIGKILL)
                brokers.brokers[0].wait()
                brokers.lead()
        jobs = ended(brokers)
        expected = dict.fromkeys([*(name for each in USERS.values() for name in each), "root"], 0.0)
        for job in jobs:
            for account in (*USERS[job["userid"]], "root"):
                expected[account] += job["nnodes"] * (job["t_inactive"] - job["t_run"])
        count = "SELECT count(*) FROM jobs"
        until(lambda: data.rows(count)[0][0] == len(jobs), "all jobs are in the table")
        until(lambda: usages(data) == pytest.approx(expected), f"{usages(data)} is {expected}")
        # The cron jobs of a site find everything done.
        for name in ("fetch-job-records", "update-usage", "update-fshare", "priority-update"):
            done = brokers.flux(f"account-{name}", "-p", str(tmp_path / "site.db"))
            assert done.returncode == 0, done.stderr
        assert usages(data) == pytest.approx(expected) and data.rows(count)[0][0] == len(jobs)
        assert brokers.finish()[0] == 0
        brokers.until_nothing_is_left()


def test_who_has_used_more_waits_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users' waiting jobs change places when one has used the machine: fair share is pushed by itself."""
    with site(tmp_path) as (brokers, data):
        brokers.lead()
        until(lambda: program(brokers), "the program runs")
        submit(brokers, 1001, monkeypatch, 0.5)
        until(lambda: usages(data)["ann"], "ann's job is booked")
        # Both cores are taken for longer than the test needs.
        for _ in range(2):
            submit(brokers, 1002, monkeypatch, 600)
        for userid in (1001, 1002):
            submit(brokers, userid, monkeypatch)
        monkeypatch.delenv("FLUX_HANDLE_USERID")

        def waiting(state: int) -> dict[int, dict[str, Any]]:
            """The jobs in a state, by user."""
            request = {"max_entries": 0, "attrs": ["userid", "priority", "state"]}
            with brokers.handle() as handle:
                jobs = [job for reply in handle.stream("job-list.list", request) for job in reply["jobs"]]
            return {job["userid"]: job for job in jobs if job["state"] == state}

        def priorities() -> dict[int, int]:
            return {userid: job["priority"] for userid, job in waiting(SCHED).items()}

        until(lambda: priorities() == {1001: 50000, 1002: 100000}, f"bob is first: {priorities()}")
        why = brokers.flux("account", "why", str(waiting(SCHED)[1001]["id"])).stdout
        assert "user 1001, bank A, SCHED\npriority 50000\n" in why
        assert re.search(r"^fairshare +\| 0\.5 +\| 100000 \| 50000\.0", why, re.MULTILINE)
        assert "before it: 1 pending jobs\n" in why and re.search(r"\| 1002 \| B +\| 100000", why)
        assert re.search(r"^\S+ +1001 +A +.* 50000 +$", brokers.flux("account", "jobs", "ann").stdout, re.MULTILINE)
        # A limit is sent to the policy as soon as it is changed.
        assert brokers.flux("account", "edit-user", "bob", "--max-running-jobs=2").returncode == 0
        until(lambda: submit(brokers, 1002, monkeypatch) or waiting(DEPEND), "a job is held")
        monkeypatch.delenv("FLUX_HANDLE_USERID")
        why = brokers.flux("account", "why", str(waiting(DEPEND)[1002]["id"])).stdout
        assert "priority none yet" in why
        assert "limit max-running-jobs-user-limit: 2 running jobs, max_running_jobs is 2\n" in why
        assert brokers.flux("module", "remove", "accounting").returncode == 0
        assert not program(brokers)
        assert brokers.flux("cancel", "--all", "--user=all").returncode == 0
        assert brokers.finish()[0] == 0


@pytest.mark.soak
def test_two_banks_get_their_parts_of_the_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Banks of 3 and 1 shares, users with endless queues of equal jobs, and a short half-life."""
    number = size("shared_jobs")
    with site(tmp_path) as (brokers, data):
        for key, value in (("priority_decay_half_life", "15"), ("priority_usage_reset_period", "60")):
            data.execute("UPDATE config_table SET value = :value WHERE key = :key", {"key": key, "value": value})
        data.execute("UPDATE t_half_life_period_table SET end_half_life_period = 0")
        config = Path(brokers.config).read_text()
        Path(brokers.config).write_text(
            config.replace('cores = "0-1"', 'cores = "0-15"').replace("= 0.2", "= 0.25\ncount_running = true")
        )
        brokers.lead()
        until(lambda: program(brokers), "the program runs")
        for userid in USERS:
            submit(brokers, userid, monkeypatch, 0.5, number)
        monkeypatch.delenv("FLUX_HANDLE_USERID")
        count = "SELECT count(*) FROM jobs"
        until(lambda: data.rows(count)[0][0] >= number, "as many jobs have ended")
        used = dict(data.rows("SELECT bank, sum(t_inactive - t_run) FROM jobs GROUP BY bank"))
        assert brokers.flux("cancel", "--all", "--user=all").returncode == 0
        assert brokers.finish()[0] == 0
    # The first jobs start before there is any usage, which counts in a short run.
    assert used["A"] / used["B"] == pytest.approx(3, rel=0.05 if number >= 2000 else 0.25)
