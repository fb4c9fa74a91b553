"""Two real instances book into one PostgreSQL: while it is away, when they are killed, and with their commands."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from accounting_site import USERS, ended, filled, instance, program, submit, usages
from bootstrapped import Cluster, until

import seeds
from headrace.engine.accounting import database
from headrace.engine.accounting.database import Access
from postgresql import Postgresql, server
from sizes import size

__all__ = ["server"]

CLUSTERS = ("north", "south")


@pytest.fixture
def where(server: Postgresql) -> tuple[str, Access]:
    """A new database, and how it is opened."""
    address = server.create(f"site_{os.urandom(4).hex()}")
    return address.url, Access(address.password_file)


def settings(where: tuple[str, Access], cluster: str) -> list[str]:
    """The lines of [accounting] of an instance."""
    url, access = where
    return [f'database = "{url}"', f'password_file = "{access.password_file}"', f'cluster = "{cluster}"']


def test_jobs_that_end_while_the_database_is_away_are_booked_when_it_is_back(
    server: Postgresql, where: tuple[str, Access], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(*where) as data, contextlib.ExitStack() as stack:
        north, south = (stack.enter_context(instance(tmp_path / one, *settings(where, one))) for one in CLUSTERS)

        def run(brokers: Cluster) -> None:
            submit(brokers, 1001, monkeypatch)
            monkeypatch.delenv("FLUX_HANDLE_USERID")

        def refuses(brokers: Cluster) -> None:
            asked = ("account", "view-bank", "root")
            until(lambda: "Connection refused" in brokers.flux(*asked).stderr, "the command says that it is away")

        north.lead()
        run(north)
        until(lambda: usages(data)["ann"] > 0, "the job is booked")
        server.stop()
        try:
            # South starts without the database.
            south.lead()
            for brokers in (north, south):
                refuses(brokers)
                run(brokers)
            ended(north)
            # The job in south waits, since the policy has no tables yet.
            until(lambda: "jobs that ended before: connection failed" in south.log(0), "the error is logged")
        finally:
            server.start()
        until(lambda: north.flux("account", "view-bank", "root").returncode == 0, "the database is back")
        data = stack.enter_context(contextlib.closing(database.opened(*where)))
        count = "SELECT cluster, count(*) FROM jobs GROUP BY cluster ORDER BY cluster"
        until(lambda: data.rows(count) == [("north", 2), ("south", 1)], "all jobs are booked")
        spent = "SELECT sum(t_inactive - t_run) FROM jobs"
        assert usages(data)["root"] == pytest.approx(data.rows(spent)[0][0])
        # Both instances answer from the same tables.
        assert north.flux("account", "add-queue", "day").returncode == 0
        assert south.flux("account", "view-queue", "day").returncode == 0
        assert "PRODUCT" in north.flux("account", "why", str(ended(north)[0]["id"])).stdout
        assert "| 3" in south.flux("account", "report").stdout
        for brokers in (north, south):
            assert brokers.finish()[0] == 0


@pytest.mark.soak
def test_every_job_is_booked_once_whatever_is_killed(
    where: tuple[str, Access], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seeds.seed())

    def kill_program(brokers: Cluster) -> None:
        until(lambda: program(brokers), "the program runs")
        with contextlib.suppress(ProcessLookupError):
            os.kill(program(brokers), signal.SIGKILL)

    with filled(*where) as data, contextlib.ExitStack() as stack:
        both = [stack.enter_context(instance(tmp_path / one, *settings(where, one))) for one in CLUSTERS]
        for brokers in both:
            brokers.lead()
        for _ in range(size("book_kills")):
            for brokers in both:
                for _ in range(dice.randint(3, 12)):
                    submit(brokers, dice.choice(sorted(USERS)), monkeypatch, dice.choice((0.01, 0.05)))
                monkeypatch.delenv("FLUX_HANDLE_USERID")
            killed = dice.choice(both)
            if dice.random() < 0.6:
                kill_program(killed)
            else:
                os.kill(killed.pid(0), signal.SIGKILL)
                killed.brokers[0].wait()
                killed.lead()
        jobs = [job for brokers in both for job in ended(brokers)]
        expected = dict.fromkeys([*(name for each in USERS.values() for name in each), "root"], 0.0)
        for job in jobs:
            for account in (*USERS[job["userid"]], "root"):
                expected[account] += job["nnodes"] * (job["t_inactive"] - job["t_run"])
        until(lambda: data.rows("SELECT count(*) FROM jobs")[0][0] == len(jobs), "all jobs are in the table")
        until(lambda: usages(data) == pytest.approx(expected), f"{usages(data)} is {expected}")
        for brokers in both:
            assert brokers.finish()[0] == 0
            brokers.until_nothing_is_left()
