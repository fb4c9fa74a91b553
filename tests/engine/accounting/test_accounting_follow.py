"""Jobs are booked as they end, each once, whatever crashes; the policy gets what has changed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting_databases import KINDS
from engine.accounting.instance_stand_in import USERS, Instance, Timers, add_users, resources, usages
from headrace.engine.accounting import database, usage
from headrace.engine.accounting.follow import Follower, Settings
from headrace.storage.database import Database

NOW = 1_700_000_000.0
WEEK = 7 * 86400.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with users ann in bank A and bob in bank B."""
    path = tmp_path_factory.mktemp("follow") / "site.db"
    database.create(str(path), now=NOW)
    with contextlib.closing(database.opened(str(path))) as data:
        add_users(data)
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Database]:
    with contextlib.closing(database.opened(str(path))) as data:
        data.execute("PRAGMA synchronous = OFF")
        yield data


@pytest.fixture(params=KINDS)
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AbstractContextManager[Database]]:
    """Opens the database of a test, for another program."""
    if request.param == "postgresql":
        remote = request.getfixturevalue("remote")
        remote.restore("follow")
        return lambda: contextlib.closing(database.opened(remote.url, remote.access))
    shutil.copy(request.getfixturevalue("file"), tmp_path / "a.db")
    return lambda: opened(tmp_path / "a.db")


@pytest.fixture
def data(another: Callable[[], AbstractContextManager[Database]]) -> Iterator[Database]:
    with another() as found:
        yield found


def follow(instance: Instance, data: Database, now: float = NOW, **chosen: Any) -> tuple[Follower, Timers]:
    timers = Timers()
    follower = Follower(instance, timers, data, Settings(**chosen), lambda: now)  # type: ignore[arg-type]
    follower.start()
    return follower, timers


def test_jobs_are_booked_to_users_and_banks_with_their_rows(data: Database) -> None:
    instance = Instance()
    before = instance.end(1001, "A", 2, NOW, NOW + 10)
    follower, timers = follow(instance, data)
    timers.run(instance)
    instance.end(1002, "B", 3, NOW + 5, NOW + 15)
    instance.end(1002, "B", 3, NOW + 5, NOW + 16, ran=False)
    instance.end(1002, "A", 3, NOW + 5, NOW + 17)
    timers.run(instance)
    assert usages(data) == {"ann": 20.0, "A": 20.0, "bob": 30.0, "B": 30.0, "root": 50.0}
    rows = data.rows("SELECT id, userid, t_run, t_inactive, ranks, bank, requested_duration, actual_duration FROM jobs")
    assert rows[0] == (str(before), 1001, NOW, NOW + 10, "[0-1]", "A", 60.0, 10.0)
    assert [row[5] for row in rows] == ["A", "B", "A"]
    assert follower.stats() == {"booked": 2, "unbooked": 0, "shared": 1}


def test_the_usage_of_a_bank_is_summed_when_a_job_is_booked_to_it(data: Database) -> None:
    instance = Instance()
    _, timers = follow(instance, data, interval=0.0)
    timers.run(instance)
    data.execute("UPDATE bank_table SET job_usage = 7.0 WHERE bank IN ('A', 'B')")
    instance.end(1001, "A", 1, NOW, NOW + 10)
    timers.run(instance)
    assert usages(data) == {"ann": 10.0, "A": 10.0, "B": 7.0, "root": 17.0}
    with data.transaction(locked=True):
        usage.update(data, NOW)
    assert usages(data) == {"ann": 10.0, "A": 10.0, "root": 10.0}


def test_a_reloaded_job_manager_is_followed_anew(data: Database) -> None:
    instance = Instance()
    _, timers = follow(instance, data)
    timers.run(instance)
    (journal,) = instance.journals
    instance.journals.clear()
    instance.end(1001, "A", 1, NOW, NOW + 1)
    journal.found.append(OSError(38, "unloaded"))
    journal.callback(journal)
    timers.run(instance)
    instance.end(1001, "A", 1, NOW, NOW + 2)
    timers.run(instance)
    assert usages(data)["ann"] == 3.0


def test_an_instance_or_database_that_fails_is_asked_again_after_growing_pauses(
    data: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    instance = Instance()
    _, timers = follow(instance, data)
    timers.run(instance)
    instance.end(1001, "A", 1, NOW, NOW + 1)
    instance.end(1001, "A", 1, NOW, NOW + 2, ran=False)
    # Each attempt asks for both.
    instance.failing = 5
    timers.run(instance)
    assert usages(data)["ann"] == 1.0 and [pause for pause in timers.pauses if pause >= 2] == [60, 2, 4, 8]
    assert capfd.readouterr().err.count("2 jobs are not booked yet: [Errno 38] no such service") == 3


class Crash(Exception):
    """The process is killed."""


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            *(st.just("end"), st.sampled_from(sorted(USERS)), st.integers(1, 4), st.integers(1, 900)),
            st.sampled_from((0, 900)),
        ),
        st.tuples(st.just("run"), st.sampled_from((1, 2, 100))),
        st.tuples(st.just("crash"), st.integers(0, 30)),
        st.tuples(st.just("start")),
    ),
    min_size=15,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_usage_is_the_sum_over_a_week_with_crashes(tmp_path_factory: Any, file: Path, actions: list[Any]) -> None:
    """A crash comes at any statement: what was not committed is gone. Jobs end while no process is there.

    Some ends are minutes earlier than those that were seen before, since clocks differ.
    """
    path = tmp_path_factory.mktemp("week") / "a.db"
    shutil.copy(file, path)
    instance, clock = Instance(), NOW
    expected: dict[str, float] = {}
    with contextlib.ExitStack() as stack:

        def start() -> Timers:
            nonlocal data
            stack.close()
            instance.journals.clear()
            data = stack.enter_context(opened(path))
            return follow(instance, data)[1]

        data = stack.enter_context(opened(path))
        timers = start()
        for action, *more in actions:
            if action == "end":
                userid, nodes, seconds, late = more
                clock = min(clock + seconds, NOW + WEEK)
                end = clock - late
                name, bank = USERS[userid]
                instance.end(userid, bank, nodes, end - seconds, end)
                for account in (name, bank, "root"):
                    expected[account] = expected.get(account, 0.0) + nodes * seconds
            elif action == "run":
                timers.run(instance, *more)
            elif action == "crash" and instance.journals:
                with contextlib.suppress(Crash):
                    _crash_after(data, more[0])
                    timers.run(instance)
                stack.close()
                instance.journals.clear()
                timers = Timers()
            else:
                timers = start()
        timers = start()
        timers.run(instance)
        assert usages(data) == pytest.approx(expected)
        assert len(data.rows("SELECT id FROM jobs")) == len(instance.ended)


def _crash_after(data: Database, statements: int) -> None:
    """Let a database raise Crash at its next statement after some."""
    left = statements
    run = data._run

    def counted(sql: str, values: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crash
        return run(sql, values)

    data._run = counted  # type: ignore[method-assign]


def test_only_changed_rows_are_pushed(data: Database) -> None:
    instance = Instance()
    follower, timers = follow(instance, data)
    timers.run(instance)
    names = [name for name, _ in instance.pushed]
    assert names == [
        *("rec_update", "rec_q_update", "rec_proj_update", "rec_bank_update", "rec_fac_update", "rec_config_update"),
        "reprioritize",
    ]
    assert [row["bank"] for row in instance.pushed[0][1]] == ["A", "B"]
    instance.pushed.clear()
    instance.end(1001, "A", 1, NOW, NOW + 10)
    timers.run(instance)
    timers.repeated[0]()
    # ann is behind bob now, whose fair share stays.
    ((_, (row,)), (last, _)) = instance.pushed
    assert (row["userid"], row["fairshare"], last) == (1001, 0.5, "reprioritize")
    instance.pushed.clear()
    timers.repeated[0]()
    assert not instance.pushed
    data.execute("DELETE FROM association_table WHERE username = 'bob'")
    follower.changed("delete_user")
    timers.run(instance)
    assert {(row["userid"], row["active"]) for row in instance.pushed[0][1]} >= {(1002, 0)}


def test_a_policy_that_is_loaded_gets_everything(data: Database) -> None:
    instance = Instance()
    instance.has_policy = False
    follower, timers = follow(instance, data)
    timers.run(instance)
    assert not instance.pushed
    instance.has_policy = True
    timers.repeated[0]()
    assert not instance.pushed
    follower.policy_loaded()
    timers.run(instance)
    assert len(instance.pushed) == 7


def test_a_change_of_the_database_by_another_program_is_seen(
    data: Database, another: Callable[[], AbstractContextManager[Database]]
) -> None:
    instance = Instance()
    _, timers = follow(instance, data)
    timers.run(instance)
    instance.pushed.clear()
    with another() as other:
        other.execute("UPDATE association_table SET max_running_jobs = 9 WHERE username = 'ann'")
    timers.repeated[0]()
    assert [row["max_running_jobs"] for row in instance.pushed[0][1]] == [9]


def test_with_interval_0_jobs_are_booked_and_nothing_is_pushed(data: Database) -> None:
    instance = Instance()
    instance.end(1001, "A", 1, NOW, NOW + 10)
    follower, timers = follow(instance, data, interval=0.0)
    follower.changed("add_user")
    timers.run(instance)
    assert usages(data)["ann"] == 10.0
    assert not instance.pushed and not timers.repeated


def test_usage_that_was_cleared_counts_from_the_given_time(data: Database) -> None:
    instance = Instance()
    follower, timers = follow(instance, data)
    instance.end(1001, "A", 1, NOW - 100, NOW - 90)
    instance.end(1001, "A", 1, NOW, NOW + 5)
    timers.run(instance)
    with data.transaction():
        usage.clear_usage(data, {"banks": ["A"], "ignore_older_than": str(NOW - 50)})
    assert usages(data) == {}
    follower.changed("clear_usage")
    timers.run(instance)
    assert usages(data)["ann"] == 5.0


def test_usage_of_running_jobs_counts_for_fair_share_and_is_not_booked(data: Database) -> None:
    instance = Instance()
    instance.running[7] = {"userid": 1001, "bank": "A", "t_run": NOW - 50, "R": resources(2)}
    instance.running[8] = {"userid": 9, "bank": "A", "t_run": NOW - 50, "R": resources(2)}
    _, timers = follow(instance, data, count_running=True)
    timers.run(instance)
    shares = "SELECT username, fairshare FROM association_table"
    assert dict(data.rows(shares)) == {"ann": 0.5, "bob": 1.0} and usages(data) == {}
    assert instance.lookups == 2
    timers.repeated[0]()
    assert instance.lookups == 2
    instance.running.clear()
    timers.repeated[0]()
    assert dict(data.rows(shares)) == {"ann": 1.0, "bob": 1.0}
