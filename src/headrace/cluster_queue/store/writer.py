"""Writes records into the database. The queue itself never waits for the database.

While the database is away records wait in memory. Beyond LIMIT the oldest are dropped and counted. A process that
starts, and one that has dropped records, writes the present record of every job, so that no job is missing afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from headrace.k8s.runtime.controller import Shared

from ..cycle.chronicle import Record
from . import writing
from .database import Address, BadValue, Database, DatabaseError, opened

log = logging.getLogger("headrace.cluster_queue.store")

T = TypeVar("T")

# Maximum number of records that wait.
LIMIT = 10_000
# Records in one transaction.
_BATCH = 200
# Seconds until the next attempt at the database: doubled from the first to the last.
_FIRST_DELAY, _LAST_DELAY = 0.2, 10.0
# Seconds for the last writes of a process that ends.
_DRAIN_TIMEOUT = 3.0


class Writer:
    """The writer of one process (a part of its controller); it writes once the process leads.

    `all_now` returns a record of each job. It is called after `begin`.
    """

    name = "store"

    def __init__(self, shared: Shared, address: Address, all_now: Callable[[float], list[Record]]) -> None:
        self.queue: deque[Record] = deque()
        self._address = address
        self._all_now = all_now
        self._sending: list[Record] = []
        self._has_begun = asyncio.Event()
        self._wake = asyncio.Event()
        # How many records were dropped, and how many of these before all jobs were written the last time.
        self._dropped, self._repaired = 0, -1
        self._database: Database | None = None
        self._metrics = shared.metrics
        prefix = f"{shared.component.replace('-', '_')}_store"
        self._written, self._lost = f"{prefix}_records_written_total", f"{prefix}_records_lost_total"
        self._failures = f"{prefix}_failures_total"
        self._metrics.counter(self._written, "Records that were written to the database.")
        self._metrics.counter(self._lost, "Records dropped because too many were waiting for the database.")
        self._metrics.counter(self._failures, "Failed attempts to use the database.")
        self._metrics.gauge(f"{prefix}_connected", "1 while there is a connection to the database.", self._connected)
        shared.controllers.append(self)

    def begin(self) -> None:
        """Start writing: from now on `all_now` knows all jobs."""
        self._has_begun.set()

    def put(self, records: Iterable[Record]) -> None:
        """Queue records for the database; beyond LIMIT the oldest are dropped."""
        self.queue.extend(records)
        excess = len(self.queue) + len(self._sending) - LIMIT
        for _ in range(min(excess, len(self.queue))):
            self.queue.popleft()
            self._drop()
        self._wake.set()

    async def work(self) -> None:
        """Write records as they come, until cancelled; then write those that still wait."""
        await self._has_begun.wait()
        delay = _FIRST_DELAY
        try:
            while True:
                try:
                    await self._write()
                    delay = _FIRST_DELAY
                    await self._wake.wait()
                    self._wake.clear()
                except Exception as exc:
                    self._metrics.count(self._failures)
                    waiting = {"waiting": len(self.queue) + len(self._sending)}
                    if isinstance(exc, DatabaseError):
                        log.warning("the store: %s; again in %.1f s", exc, delay, extra=waiting)
                    else:
                        log.exception("defect of the store", extra=waiting)
                    await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                    delay = min(2 * delay, _LAST_DELAY)
        except asyncio.CancelledError:
            if self._database is not None:
                await self._end(self._database)
            raise

    async def _end(self, database: Database) -> None:
        try:
            await asyncio.wait_for(self._drain(database), _DRAIN_TIMEOUT)
        except (DatabaseError, asyncio.TimeoutError) as exc:
            log.warning("the store: %s", str(exc) or "no answer", extra={"left": len(self.queue)})

    async def _write(self) -> None:
        """Write all records that wait. Raises DatabaseError."""
        database = self._database
        if database is None:
            database = await in_thread(opened, self._address)
            log.info("connected to the store", extra={"store": self._address.url})
            self._database = database
        try:
            await self._drain(database)
            while self._repaired < self._dropped:
                # All earlier records are written, so no older record of a job follows.
                now, dropped = time.time(), self._dropped
                await in_thread(writing.write_all, database, self._all_now(now), now)
                self._repaired = dropped
                await self._drain(database)
        except Exception:
            self._database = None
            await in_thread(database.close)
            raise

    async def _drain(self, database: Database) -> None:
        while self.queue or self._sending:
            # Records whose write was cut short, by the end of the process or of the connection, are written once more.
            while self.queue and len(self._sending) < _BATCH:
                self._sending.append(self.queue.popleft())
            try:
                await in_thread(writing.write, database, self._sending)
            except BadValue:
                await self._write_singly(database)
            self._metrics.count(self._written, add=len(self._sending))
            self._sending = []

    async def _write_singly(self, database: Database) -> None:
        """Write the records one by one, and drop those that the database rejects at any attempt."""
        for record in list(self._sending):
            try:
                await in_thread(writing.write, database, [record])
            except BadValue as exc:
                log.error("the store rejects the record of %s/%s: %s", record.facts.namespace, record.facts.name, exc)
                self._sending.remove(record)
                self._metrics.count(self._lost)

    def _drop(self) -> None:
        self._dropped += 1
        self._metrics.count(self._lost)

    def _connected(self) -> dict[tuple[str, ...], float]:
        return {(): float(self._database is not None)}


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a blocking function in a daemon thread.

    A database may never answer, and the process must be able to end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result, failure = None, None
        try:
            result = function(*arguments)
        except BaseException as exc:
            failure = exc
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            # The loop has ended in the meantime.
            pass

    threading.Thread(target=run, name="store", daemon=True).start()
    return await future
