"""The module accounting in real instances: it books what jobs used, whatever is killed, and fills the policy."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from accounting_site import USERS, ended, program, site, submit, usages
from bootstrapped import until
from instance import FLUX

import seeds
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.job_state import DEPEND, SCHED
from sizes import size


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
        held = str(waiting(DEPEND)[1002]["id"])
        why = brokers.flux("account", "why", held).stdout
        assert "priority none yet" in why
        assert "limit max-running-jobs-user-limit: 2 running jobs, max_running_jobs is 2\n" in why
        found = json.loads(brokers.flux("account", "why", "--json", held).stdout)
        assert (found["priority"], found["bank"], found["state"]) == (None, "B", "DEPEND")
        assert [term["name"] for term in found["terms"]] == ["fairshare", "queue", "bank", "urgency"]
        assert [limit["name"] for limit in found["limits"]] == ["max-running-jobs-user-limit"]
        assert sum(found["before"]["banks"].values()) == found["before"]["count"] >= 1
        assert brokers.flux("module", "remove", "accounting").returncode == 0
        assert not program(brokers)
        assert brokers.flux("cancel", "--all", "--user=all").returncode == 0
        assert brokers.finish()[0] == 0


@pytest.mark.soak
def test_two_banks_get_their_parts_of_the_instance_and_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Banks of 3 and 1 shares, users with endless queues of equal jobs, and a short half-life."""
    number, seconds, interval = size("shared_jobs"), 0.25, 0.25
    is_soak = number >= 2000
    # A user who comes first starts jobs until usage has been booked, so the half-life is long compared with a job.
    cores, half_life = (4, 30) if is_soak else (8, 15)
    with site(tmp_path) as (brokers, data):
        for key, value in (("priority_decay_half_life", half_life), ("priority_usage_reset_period", 4 * half_life)):
            data.execute("UPDATE config_table SET value = :value WHERE key = :key", {"key": key, "value": str(value)})
        data.execute("UPDATE t_half_life_period_table SET end_half_life_period = 0")
        config = Path(brokers.config).read_text()
        config = config.replace('cores = "0-1"', f'cores = "0-{cores - 1}"')
        Path(brokers.config).write_text(
            config.replace("interval = 0.2", f"interval = {interval}\ncount_running = true")
        )
        brokers.lead()
        until(lambda: program(brokers), "the program runs")
        until(lambda: brokers.flux("account", "export-db", "-F").returncode == 0, "the service answers")
        (tmp_path / "banks").write_text(brokers.flux("account", "export-db", "-F").stdout)
        for userid in USERS:
            submit(brokers, userid, monkeypatch, seconds, number)
        monkeypatch.delenv("FLUX_HANDLE_USERID")
        count = "SELECT count(*) FROM jobs"
        until(lambda: data.rows(count)[0][0] >= number, "as many jobs have ended", 1200)
        ended = data.rows(f"SELECT bank, t_inactive - t_run, t_inactive FROM jobs ORDER BY t_inactive LIMIT {number}")
        with brokers.handle() as handle:
            request = {"max_entries": 0, "attrs": ["userid", "t_submit"]}
            jobs = [job for reply in handle.stream("job-list.list", request) for job in reply["jobs"]]
        assert brokers.flux("cancel", "--all", "--user=all").returncode == 0
        assert brokers.finish()[0] == 0
    used = {bank: sum(spent for where, spent, _ in ended if where == bank) for bank in "AB"}
    part = used["A"] / (used["A"] + used["B"])
    # The simulator counts whole seconds, so its times are longer by a factor.
    scale = 100
    runtime = scale * sum(used.values()) / number
    request = jobspec_build.from_command(["hostname"])
    begin = min(job["t_submit"] for job in jobs)
    with open(tmp_path / "trace", "w") as trace:
        for job in sorted(jobs, key=lambda job: job["id"]):
            times = {"submit": (job["t_submit"] - begin) * scale, "runtime": runtime}
            line = {"id": job["id"], "user": USERS[job["userid"]][0], **times, "jobspec": request}
            trace.write(json.dumps(line) + "\n")
    argv = [FLUX, "simulate", f"{tmp_path}/trace", "--nodes=1", f"--cores={cores}", "--policy=fcfs", "--starts=-"]
    argv += [f"--banks={tmp_path}/banks", f"--fair-share={half_life * scale}s", "--count-running"]
    argv += [f"--fair-share-interval={interval * scale}s"]
    starts = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    first = sorted(csv.DictReader(starts.splitlines()), key=lambda row: int(row["end"]))[:number]
    users = {str(job["id"]): job["userid"] for job in jobs}
    simulated = [USERS[users[row["id"]]][1] for row in first].count("A") / number
    print(f"part of bank A: {part:.4f}, simulated {simulated:.4f}")
    # The first jobs start before there is any usage, which counts in a short run.
    assert used["A"] / used["B"] == pytest.approx(3, rel=0.05 if is_soak else 0.25)
    assert simulated == pytest.approx(part, rel=0.02 if is_soak else 0.1)
