"""Several instances book into one database of PostgreSQL: each job once, whatever is killed, and fair share for all."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from typing import BinaryIO

import msgspec
import pytest

import seeds
import waiting
from accounting_databases import NOW, Accounts
from engine.accounting.instance_stand_in import USERS, Instance, Timers, resources, usages
from headrace.engine.accounting import database, usage
from headrace.engine.accounting.follow import Follower, Settings
from headrace.storage.database import Database, DatabaseError
from sizes import size

CLUSTERS = ("north", "south")


@contextlib.contextmanager
def opened(remote: Accounts, cluster: str) -> Iterator[Database]:
    """A connection that keeps the books of a cluster."""
    access = msgspec.structs.replace(remote.access, cluster=cluster, keeps_books=True)
    with contextlib.closing(database.opened(remote.url, access)) as data:
        yield data


@pytest.fixture
def data(remote: Accounts) -> Database:
    remote.restore("follow")
    return remote.data


def follow(instance: Instance, data: Database, count_running: bool = False) -> Timers:
    timers = Timers()
    settings = Settings(count_running=count_running)
    Follower(instance, timers, data, settings, lambda: NOW).start()  # type: ignore[arg-type]
    timers.run(instance)
    return timers


def test_clusters_have_jobs_of_the_same_ids_and_share_their_usage(remote: Accounts, data: Database) -> None:
    with opened(remote, "north") as north, opened(remote, "south") as south:
        for cluster, nodes in ((north, 1), (south, 2)):
            instance = Instance()
            assert instance.end(1001, "A", nodes, NOW, NOW + 10) == 1000
            follow(instance, cluster)
        found = data.rows("SELECT cluster, id, t_inactive FROM jobs ORDER BY cluster")
        assert found == [("north", "1000", NOW + 10), ("south", "1000", NOW + 10)]
        assert usages(data) == {"ann": 30.0, "A": 30.0, "root": 30.0}


def test_a_cluster_that_was_away_for_long_is_booked_though_another_one_went_on(
    remote: Accounts, data: Database
) -> None:
    late = Instance()
    late.end(1001, "A", 1, NOW, NOW + 10)
    with opened(remote, "north") as north, opened(remote, "south") as south:
        ahead = Instance()
        ahead.end(1001, "A", 1, NOW + 10 * usage.MARGIN, NOW + 10 * usage.MARGIN + 5)
        follow(ahead, north)
        follow(late, south)
        assert usages(data)["ann"] == 15.0


def test_jobs_of_all_clusters_are_counted_anew_after_usage_was_cleared(remote: Accounts, data: Database) -> None:
    with opened(remote, "north") as north, opened(remote, "south") as south:
        for cluster in (north, south):
            instance = Instance()
            instance.end(1001, "A", 1, NOW, NOW + 10)
            follow(instance, cluster)
    with data.transaction(locked=True):
        usage.clear_usage(data, {"banks": ["A"], "ignore_older_than": str(NOW - 50)})
        assert usages(data) == {}
        assert usage.update(data, NOW) == 2
        assert usages(data)["ann"] == 20.0
        assert usage.update(data, NOW) == 0


def test_a_change_by_one_cluster_reaches_the_policy_of_the_other(remote: Accounts, data: Database) -> None:
    with opened(remote, "north") as north, opened(remote, "south") as south:
        busy, idle = Instance(), Instance()
        timers = follow(idle, south)
        idle.pushed.clear()
        busy.end(1001, "A", 1, NOW, NOW + 10)
        follow(busy, north)
        timers.repeated[0]()
        assert [(row["userid"], row["fairshare"]) for row in idle.pushed[0][1]] == [(1001, 0.5)]
        idle.pushed.clear()
        timers.repeated[0]()
        assert not idle.pushed


def test_usage_of_jobs_that_run_in_one_cluster_counts_in_all(remote: Accounts, data: Database) -> None:
    shares = "SELECT username, fairshare FROM association_table"
    with opened(remote, "north") as north, opened(remote, "south") as south:
        busy, idle = Instance(), Instance()
        busy.running[7] = {"userid": 1001, "bank": "A", "t_run": NOW - 50, "R": resources(2)}
        counting = follow(busy, north, count_running=True)
        timers = follow(idle, south)
        assert dict(data.rows(shares)) == {"ann": 0.5, "bob": 1.0} and usages(data) == {}
        assert {row["userid"]: row["fairshare"] for row in idle.pushed[0][1]} == {1001: 0.5, 1002: 1.0}
        busy.running.clear()
        counting.repeated[0]()
        timers.repeated[0]()
        assert dict(data.rows(shares)) == {"ann": 1.0, "bob": 1.0}


def test_two_instances_cannot_have_one_name(remote: Accounts, data: Database) -> None:
    with opened(remote, "north"):
        with pytest.raises(DatabaseError, match='another service keeps the books of cluster "north" in this database'):
            database.opened(remote.url, msgspec.structs.replace(remote.access, cluster="north", keeps_books=True))
        # Commands use the cluster beside its service.
        database.opened(remote.url, msgspec.structs.replace(remote.access, cluster="north")).close()


# A job's user, nodes, and seconds after NOW at which it starts and ends.
Run = tuple[int, int, int, int]


def _end(instance: Instance, job: Run) -> None:
    userid, nodes, start, end = job
    instance.end(userid, USERS[userid][1], nodes, NOW + start, NOW + end)


def _book(remote: Accounts, cluster: str, ended: list[Run], ending: list[Run], progress: int) -> None:
    """Book jobs that have ended, then some that end now. A byte is written to `progress` before each of these."""

    def opens() -> bool:
        # The server may not have noticed yet that the process before this one was killed.
        with contextlib.suppress(DatabaseError):
            found.append(stack.enter_context(opened(remote, cluster)))
        return bool(found)

    found: list[Database] = []
    with contextlib.ExitStack() as stack:
        waiting.until(opens)
        instance, timers = Instance(), Timers()
        for job in ended:
            _end(instance, job)
        Follower(instance, timers, found[0], Settings(), lambda: NOW).start()  # type: ignore[arg-type]
        for job in ending:
            timers.run(instance, 2)
            os.write(progress, b".")
            _end(instance, job)
        timers.run(instance)


def started(remote: Accounts, cluster: str, ended: list[Run], ending: list[Run]) -> tuple[int, BinaryIO]:
    """A process that books; returns its id and its progress."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            _book(remote, cluster, ended, ending, writes)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writes)
    return pid, open(reads, "rb", buffering=0)


def test_each_job_is_booked_once_by_two_services_that_are_killed(remote: Accounts, data: Database) -> None:
    dice = random.Random(seeds.seed())
    jobs: dict[str, list[Run]] = {cluster: [] for cluster in CLUSTERS}
    expected: dict[str, float] = {}
    clock = killed = 0
    for _ in range(size("cluster_kills") // len(CLUSTERS)):
        processes = []
        for cluster in CLUSTERS:
            new = []
            for _ in range(dice.randint(2, 8)):
                clock += dice.randint(1, 60)
                userid, nodes, seconds = dice.choice(sorted(USERS)), dice.randint(1, 4), dice.randint(1, 900)
                # Some ends are minutes earlier than those before, since clocks differ.
                end = clock - dice.choice((0, 0, 900))
                new.append((userid, nodes, end - seconds, end))
                for account in (*USERS[userid], "root"):
                    expected[account] = expected.get(account, 0.0) + nodes * seconds
            processes.append((*started(remote, cluster, jobs[cluster], new), dice.randint(1, len(new))))
            jobs[cluster] += new
        for pid, progress, number in processes:
            with progress:
                for _ in range(number):
                    assert progress.read(1)
            time.sleep(dice.random() / 100)
            os.kill(pid, signal.SIGKILL)
            killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    for cluster in CLUSTERS:
        pid, progress = started(remote, cluster, jobs[cluster], [])
        with progress:
            assert os.waitpid(pid, 0)[1] == 0
    assert killed, "each process has ended before it was killed"
    assert usages(data) == pytest.approx(expected)
    found = data.rows("SELECT cluster, count(*) FROM jobs GROUP BY cluster ORDER BY cluster")
    assert found == [(cluster, len(jobs[cluster])) for cluster in CLUSTERS]
