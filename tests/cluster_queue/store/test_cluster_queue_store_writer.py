"""The writer beside the queue: the database goes and comes, records wait, the oldest of too many go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from stored import T, contents, events, facts, life, opened

import postgresql
from headrace.cluster_queue.cycle.chronicle import Record
from headrace.cluster_queue.store import writer as writer_module
from headrace.cluster_queue.store.database import Address, Database, DatabaseError
from headrace.cluster_queue.store.writer import Writer
from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.runtime.controller import Shared
from postgresql import emptied
from waiting import PATIENCE, until_in_loop

NOWHERE = Address("postgresql://127.0.0.1:1/none")


class Running:
    """A writer at work; `there` is what it is told of all jobs."""

    def __init__(self, address: Address) -> None:
        self.metrics = Metrics()
        self.there: list[Record] = []
        shared = Shared(None, self.metrics, "headrace-fluxqueue")  # type: ignore[arg-type]
        self.writer = Writer(shared, address, lambda now: list(self.there))

    def figure(self, name: str) -> float:
        start = f"headrace_fluxqueue_{name} "
        return next(float(line.split()[1]) for line in self.metrics.text().splitlines() if line.startswith(start))

    @property
    def waiting(self) -> int:
        return len(self.writer.queue) + len(self.writer._sending)

    async def is_written(self) -> None:
        await until_in_loop(lambda: not self.waiting and self.writer._repaired == self.writer._dropped)


def work(address: Address, scenario: Callable[[Running], Awaitable[None]]) -> Running:
    """Have a writer work until a scenario ends, then end it as a process does."""

    async def whole() -> Running:
        running = Running(address)
        task = asyncio.create_task(running.writer.work())
        try:
            await scenario(running)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return running

    return asyncio.run(whole())


def test_records_are_written_as_they_come(address: Address) -> None:
    async def scenario(running: Running) -> None:
        running.writer.begin()
        for record in life():
            running.writer.put([record])
        await running.is_written()
        assert running.figure("store_connected") == 1

    running = work(address, scenario)
    assert running.figure("store_records_written_total") == 4
    with opened(address) as database:
        assert events(database) == ["submit", "alloc", "start", "finish"]


def test_what_is_there_when_a_process_begins_is_written_and_all_else_has_gone(address: Address) -> None:
    with opened(address) as database:
        writer_module.writing.write(database, [*life("gone")[:1], *life("stays")[:1]])

    async def scenario(running: Running) -> None:
        running.there = [life("stays")[2], life("new")[0]]
        running.writer.put(life("later"))
        running.writer.begin()
        await running.is_written()

    work(address, scenario)
    with opened(address) as database:
        rows = [tuple(row) for row in database.rows("SELECT uid, state FROM jobs ORDER BY uid")]
    assert rows == [("gone", "Withdrawn"), ("later", "Finished"), ("new", "Held"), ("stays", "Running")]


def test_nothing_is_written_before_all_jobs_are_known(address: Address) -> None:
    """Else those that are not known yet would be taken for gone."""
    with opened(address) as database:
        writer_module.writing.write(database, life("a")[:1])
        expected = contents(database)

    async def scenario(running: Running) -> None:
        running.writer.put(life("b"))
        await asyncio.sleep(0)
        assert running.figure("store_connected") == 0

    work(address, scenario)
    with opened(address) as database:
        assert contents(database) == expected


def test_what_is_left_is_written_when_a_process_ends(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine that takes longer than a process has.
    monkeypatch.setattr(writer_module, "_DRAIN_TIMEOUT", PATIENCE)

    async def scenario(running: Running) -> None:
        running.writer.begin()
        await running.is_written()
        running.writer.put(record for index in range(20) for record in life(f"u{index}"))

    work(address, scenario)
    with opened(address) as database:
        assert database.rows("SELECT count(*) FROM jobs WHERE state = 'Finished'")[0][0] == 20


def test_without_a_database_the_oldest_of_too_many_go_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "LIMIT", 100)

    async def scenario(running: Running) -> None:
        running.writer.begin()
        await until_in_loop(lambda: running.figure("store_failures_total") > 1)
        for number in range(150):
            running.writer.put([Record(facts(f"u{number}"), T)])
        assert [record.facts.uid for record in running.writer.queue] == [f"u{n}" for n in range(50, 150)]

    running = work(NOWHERE, scenario)
    assert running.figure("store_records_lost_total") == 50
    assert running.figure("store_connected") == 0


def test_a_server_that_is_stopped_amid_jobs_costs_no_record(server: postgresql.Postgresql) -> None:
    emptied(server.address)

    async def scenario(running: Running) -> None:
        running.writer.begin()
        await running.is_written()
        for index in range(400):
            running.writer.put(life(f"u{index}"))
            await asyncio.sleep(0)
            if index == 200:
                server.stop()
        await until_in_loop(lambda: running.figure("store_failures_total") > 1)
        assert running.figure("store_connected") == 0
        assert running.waiting >= 800
        server.start()
        await running.is_written()

    running = work(server.address, scenario)
    assert running.figure("store_records_lost_total") == 0
    with opened(server.address) as database:
        assert database.rows("SELECT count(*) FROM jobs WHERE state = 'Finished'")[0][0] == 400
        assert database.rows("SELECT count(*) FROM events")[0][0] == 1600
        assert database.rows("SELECT count(*) FROM usage WHERE until IS NOT NULL")[0][0] == 400


def test_after_a_loss_all_that_is_there_is_told_again(
    server: postgresql.Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LIMIT", 10)
    emptied(server.address)

    async def scenario(running: Running) -> None:
        running.writer.begin()
        await running.is_written()
        server.stop()
        lives = [life(f"u{index}") for index in range(20)]
        running.writer.put(record for records in lives for record in records[:3])
        running.there = [records[2] for records in lives]
        assert running.figure("store_records_lost_total") > 0
        server.start()
        await running.is_written()

    work(server.address, scenario)
    with opened(server.address) as database:
        assert database.rows("SELECT count(*) FROM jobs WHERE state = 'Running'")[0][0] == 20


def test_a_record_that_no_database_takes_keeps_none_else_back(address: Address) -> None:
    async def scenario(running: Running) -> None:
        running.writer.begin()
        running.writer.put([*life("a"), Record(facts("bad", jobid=2**70), T), *life("b")])
        await running.is_written()

    running = work(address, scenario)
    assert running.figure("store_records_lost_total") == 1
    with opened(address) as database:
        assert [row[0] for row in database.rows("SELECT uid FROM jobs ORDER BY uid")] == ["a", "b"]


@pytest.mark.parametrize("failure", [DatabaseError("the disk is full"), RuntimeError("a defect")])
def test_the_loop_goes_on_while_a_write_hangs_and_after_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    address = Address(f"sqlite:{tmp_path}/store")
    hangs, goes_on = threading.Event(), threading.Event()
    write = writer_module.writing.write

    def failing(database: Database, records: list[Record]) -> None:
        hangs.set()
        goes_on.wait()
        monkeypatch.setattr(writer_module.writing, "write", write)
        raise failure

    monkeypatch.setattr(writer_module.writing, "write", failing)

    async def scenario(running: Running) -> None:
        running.writer.put(life())
        running.writer.begin()
        await until_in_loop(hangs.is_set)
        running.writer.put(life("other"))
        assert running.waiting == 8
        goes_on.set()
        await running.is_written()
        assert running.figure("store_failures_total") == 1

    work(address, scenario)
    with opened(address) as database:
        assert database.rows("SELECT count(*) FROM jobs WHERE state = 'Finished'")[0][0] == 2


def test_a_database_that_never_answers_does_not_keep_a_process_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_DRAIN_TIMEOUT", 0.01)
    never, hangs = threading.Event(), threading.Event()

    def hanging(database: Database, records: list[Record]) -> None:
        hangs.set()
        never.wait()

    monkeypatch.setattr(writer_module.writing, "write", hanging)

    async def scenario(running: Running) -> None:
        running.writer.put(life())
        running.writer.begin()
        await until_in_loop(hangs.is_set)

    assert work(Address(f"sqlite:{tmp_path}/store"), scenario).waiting == 4
    never.set()
