"""The path of a step's output: its records are written, then its effects are released.

All records of a loop turn are one batch. With a journal, the batch is written at once, which survives a crash of this
process, and synced in a thread, which survives a crash of the machine. Records that arrive during a sync are part of
the next sync. Effects wait for the sync, with one exception: an instance with a single broker starts jobs before the
sync. Its tasks run on the same machine, so a power cut that loses the record of a start also ends the tasks, and the
job starts again as after the loss of a node. Without a journal, effects are released at once.

A disk error delays all effects, so that no effect is based on lost records. A full disk seldom leads to this: the
journal has reserved space, new jobs are refused first, and then output is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.state import disk
from headrace.engine.broker.state.journal import Journal
from headrace.engine.jobs.record import Event, Job
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Answer, Effect, Request, Start
from headrace.engine.modules.job_manager.records import (
    Entry,
    EventsPosted,
    JobAdded,
    JobReaped,
    JobsPurged,
    JobSubmitted,
    LogAppended,
    LogsSaved,
    TextAdded,
)
from headrace.engine.modules.job_manager.recover import Recovery
from headrace.engine.modules.job_manager.store import Store
from headrace.formats.exposition.histogram import Histogram
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import CLEANUP
from headrace.formats.spec.os_error import reason, text_of

# The least size of a journal file, in bytes, at which a checkpoint is made and a new file begun. A larger file has as
# many bytes as the active jobs in the last checkpoint, so checkpoints write at most as much as the journal.
_CHECKPOINT_AT = 16 << 20
# Active jobs per slice of a checkpoint. The event loop runs between two slices.
_SLICE = 64
# If only watchers wait for a record, records are collected for _SYNC_DELAY seconds before a sync, and such syncs start
# at least _SYNC_EVERY seconds apart: a sync costs half as much as a job.
_SYNC_DELAY = 0.004
_SYNC_EVERY = 0.020
# Seconds until a write, or a checkpoint, is retried after a disk error.
_RETRY = 1.0
_CHECKPOINT_AGAIN = 10.0
# Seconds for which a disk error delays all effects. After that they are released, because the instance could not be
# shut down otherwise. Starts and job ids are still held back until their records are in the journal.
_HOLD = 10.0
# Seconds for which unloading the module waits for the disk.
_DRAIN_TIMEOUT = 10.0

_encode = msgspec.msgpack.Encoder().encode
# Raised for values that msgpack cannot encode: large numbers, deep nesting, invalid text.
_UNPACKABLE = (OverflowError, RecursionError, TypeError, ValueError)

# The new events of one job in a batch: the job, the index of its first new event, and the events.
News = tuple[Job, int, list[Event]]


class Batch(NamedTuple):
    """The output of one turn: journal entries, and effects to release once the entries are durable."""

    entries: list[Entry]
    effects: list[Effect]
    news: list[News]
    finished: list[Job]


class Pipeline:
    """Writes records and releases effects, in order.

    `request(requests)` is called at the end of each turn, `release(batch)` once a batch is durable, and `start(job)`
    for each start of a batch, at its release or before.
    """

    def __init__(
        self,
        ctx: ModuleContext,
        core: Core,
        store: Store,
        journal: Journal | None,
        request: Callable[[list[Request]], None],
        release: Callable[[Batch], None],
        start: Callable[[Job], None],
    ) -> None:
        self.ctx = ctx
        self.core = core
        self.store = store
        self.journal = journal
        self.request = request
        self.release = release
        self.start = start
        self.failing = False
        self._failing_since = 0.0
        self._why = (0, "")
        self._retrying = False
        self.syncs = 0
        self.longest_sync = 0.0
        # Durations of syncs, in seconds.
        self.sync_times = Histogram()
        self._start_early = journal is not None and ctx.alone
        self._pending: list[Batch] = []
        # Bytes of accepted requests that are not written yet.
        self._promised = 0
        # Batches that are written but not synced.
        self._unsynced: list[Batch] = []
        self._syncing = False
        self._synced_at = 0.0
        self._rotating = False
        self._pool = ThreadPoolExecutor(1, "journal") if journal is not None else None
        self._unsaved: dict[int, None] = {}
        # Purged jobs that are still in the database. An array, because a list would need an int object for each job.
        self._purged = array("Q")
        # Jobs whose results were given to a waiting client since the current journal file was begun, with the results.
        # A checkpoint still saves these jobs as zombies. On a restart, the record of the wait in the journal file
        # removes them, if the record was written.
        self._reaped: dict[int, str] = {}
        ctx.watch_tables(lambda: (core.active, core.inactive, self._unsaved))
        # Bytes of the active jobs in the last checkpoint.
        self._checkpoint_size = 0
        self._texts_saved = 0
        self._soon = False
        self._saving = False
        # The time at which a failed checkpoint is retried.
        self._overdue = 0.0

    def touch(self) -> None:
        """Schedule the output of this turn, since the core has received an input."""
        # Requests are sent before the turn ends: if the scheduler responds within the turn, the end of a job and the
        # start of the next one share one write.
        self.ctx.at_flush(self._ask)
        self.ctx.at_turn_end(self._flush)

    def refusal(self, jobs: int, size: int) -> tuple[int, str] | None:
        """Why `jobs` new jobs with submissions of `size` bytes are refused (errno, text), or None.

        If the result is None, room in the journal is reserved for them.
        """
        if self.failing:
            return self._why
        if not (self._pending or self.core.has_news()):
            # Requests accepted since the last write added no records.
            self._promised = 0
        if self.journal is not None:
            # On a full disk, the reserved space is for the ends of jobs, and the output of a new job would be lost.
            full = jobs and disk.full(self.journal.folder)
            if full or not self._room(len(self.core.active) + jobs, size):
                return (errno.ENOSPC, f"{self.journal.folder} has no room for more: {disk.FULL}")
        self._promised += size
        return None

    def take_back(self, size: int) -> None:
        """Undo the reservation of `refusal` for a request that was refused for another reason."""
        self._promised = max(0, self._promised - size)

    def _room(self, jobs: int, size: int) -> bool:
        # A journal file that is just being created has room.
        return self.journal is None or self._rotating or self.journal.room(jobs, self._promised + size)

    def _ask(self) -> None:
        self.core.steps.settle()
        if self.core.requests:
            requests, self.core.requests = self.core.requests, []
            self.request(requests)

    def _flush(self) -> None:
        core, store = self.core, self.store
        core.steps.settle()
        if core.requests:
            self._ask()
        finished, core.finished = core.finished, []
        news = [(job, first, job.events[first:]) for job, first in core.dirty.items()]
        records, effects = core.take()
        if self.journal is None:
            batch = Batch([], effects, news, finished)
            self._release_starts(batch)
            self.release(batch)
            return
        entries: list[Entry] = [TextAdded(number, text) for number, text in store.texts.fresh]
        store.texts.fresh.clear()
        if finished:
            size = sum(store.size_of_logs(job.id) for job in finished)
            short = not self._room(len(core.active), size)
            entries.extend(LogsSaved(job.id, store.saved_logs(job.id, short)) for job in finished)
        # Must precede the loop: `_forget` removes purged jobs from `_unsaved` again.
        self._unsaved.update((job.id, None) for job in finished)
        for record in records:
            match record:
                case EventsPosted():
                    pass
                case JobAdded(id):
                    entries.append(JobSubmitted(id, store.submission(id)))
                    continue
                case JobsPurged(_, ids):
                    self._forget(ids)
                case JobReaped(id, why):
                    self._reaped[id] = why
                case LogAppended(id) if id not in core.active:
                    self._unsaved[id] = None
                case _:
                    pass
            entries.append(record)
        batch = Batch(entries, effects, news, finished)
        if self.failing and not (entries or news or finished or any(isinstance(effect, Start) for effect in effects)):
            # No record was produced, so the effects are released without a journal write.
            self.release(batch)
            return
        self._pending.append(batch)
        self._write()

    def _forget(self, ids: list[int]) -> None:
        """Have the next checkpoint delete purged jobs from the database, or not add them."""
        self._purged.extend(ids)
        for id in ids:
            self._unsaved.pop(id, None)

    # -- the journal

    def _write(self) -> None:
        """Append pending records to the journal, and begin or schedule a sync."""
        if self._rotating or self._retrying or not (self._pending or self.failing):
            return
        assert self.journal is not None
        batches, self._pending = self._pending, []
        entries = [entry for batch in batches for entry in batch.entries]
        # After an error, an empty batch is written too, to test whether the disk works again.
        if entries or self.failing:
            try:
                self.journal.append(self._packed(entries))
            except OSError as exc:
                self._failed(exc, batches)
                return
        self._promised = 0
        urgent = self.failing
        for batch in batches:
            if self._start_early:
                self._release_starts(batch)
            urgent = urgent or bool(batch.effects)
        self._unsynced += batches
        if urgent:
            self._sync()
        else:
            self._sync_later()

    def _packed(self, entries: list[Entry]) -> bytes:
        """The encoded entries. An entry that cannot be encoded (a bug) is logged and skipped."""
        try:
            return _encode(entries)
        except _UNPACKABLE:
            pass
        kept: list[Entry] = []
        for entry in entries:
            try:
                _encode(entry)
                kept.append(entry)
            except _UNPACKABLE as exc:
                self.ctx.log(logging.ERROR, f"journal: {type(entry).__name__} is not recorded: {exc!r}")
        return _encode(kept)

    def _release_starts(self, batch: Batch) -> None:
        for effect in batch.effects:
            if isinstance(effect, Start):
                self.start(effect.job)
        batch.effects[:] = [effect for effect in batch.effects if not isinstance(effect, Start)]

    def _sync_later(self) -> None:
        if not self._soon:
            self._soon = True
            since = self.ctx.monotonic() - self._synced_at
            self.ctx.call_later(max(_SYNC_DELAY, _SYNC_EVERY - since), self._sync_soon)

    def _sync_soon(self) -> None:
        self._soon = False
        self._sync()

    def _sync(self) -> None:
        if self._syncing or not (self._unsynced or (self.failing and not self._retrying)):
            return
        assert self.journal is not None
        self._syncing = True
        self._synced_at = self.ctx.monotonic()
        batches, self._unsynced = self._unsynced, []
        assert self._pool is not None
        self._pool.submit(self._sync_in_thread, batches)

    def _sync_in_thread(self, batches: list[Batch]) -> None:
        failure: OSError | None = None
        try:
            assert self.journal is not None
            self.journal.sync()
        except OSError as exc:
            failure = exc
        # Ten times cheaper than a future of run_in_executor.
        self.ctx.loop.call_soon_threadsafe(self._synced, failure, batches)

    def _synced(self, exc: OSError | None, batches: list[Batch]) -> None:
        self._syncing = False
        self.syncs += 1
        took = self.ctx.monotonic() - self._synced_at
        self.longest_sync = max(self.longest_sync, took)
        self.sync_times.observe(took)
        if exc is not None:
            # After a failed sync, these records may or may not be on the disk. The same holds for records written
            # since, because the kernel reports an error only once. All of them are written again: replay ignores
            # records that it has seen.
            batches += self._unsynced
            self._unsynced = []
            self._failed(exc, batches)
            return
        if self.failing and not self._retrying:
            self.failing = False
            self.ctx.log(logging.WARNING, "the journal can be written again: jobs are accepted")
        if batches:
            merged = _merged(batches)
            self._release_starts(merged)
            self.release(merged)
        if any(batch.effects for batch in self._unsynced):
            self._sync()
        elif self._unsynced:
            self._sync_later()
        if not (self._saving or self.failing) and self._checkpoint_is_due():
            self._saving = True
            self.ctx.spawn(self.checkpoint())

    def _failed(self, exc: OSError, batches: list[Batch]) -> None:
        """Handle a full or broken disk: running jobs continue, effects wait here, and new jobs are refused."""
        self._pending[:0] = batches
        now = self.ctx.monotonic()
        if not self.failing:
            self.failing = True
            self._failing_since = now
            assert self.journal is not None
            full = exc.errno in disk.NO_ROOM
            why = disk.FULL if full else reason(exc)
            text = f"the journal in {self.journal.folder} cannot be written: {why}"
            self._why = (errno.ENOSPC if full else errno.EIO, text)
            self.ctx.log(logging.CRITICAL, f"{text}: no job is accepted")
        elif now - self._failing_since >= _HOLD:
            self._release_effects()
        if not self._retrying:
            self._retrying = True
            self.ctx.call_later(_RETRY, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._write()

    def _release_effects(self) -> None:
        """Release all effects except starts and job ids. Starts of jobs canceled since are dropped."""
        batches, self._pending = self._pending, []
        kept: list[Effect] = []
        canceled: list[Job] = []
        for batch in batches:
            promises = any(isinstance(entry, JobSubmitted) for entry in batch.entries)
            released = []
            for effect in batch.effects:
                match effect:
                    case Start(job) if job.state == CLEANUP:
                        canceled.append(job)
                    case Start():
                        kept.append(effect)
                    case Answer(body=dict()) if promises:
                        kept.append(effect)
                    case _:
                        released.append(effect)
            batch.effects[:] = released
        entries = [entry for batch in batches for entry in batch.entries]
        self._pending.append(Batch(entries, kept, [], []))
        self.release(_merged(batches))
        self.core.now = self.ctx.now()
        for job in canceled:
            self.core.exec_reply({"id": job.id, "type": "release", "data": {"ranks": "all", "final": True}})
        self.touch()

    # -- checkpoints

    def _checkpoint_is_due(self) -> bool:
        assert self.journal is not None
        if self._overdue:
            return self.ctx.monotonic() >= self._overdue
        return self._is_large()

    def _is_large(self) -> bool:
        """True if the journal file is so large that a checkpoint is due."""
        assert self.journal is not None
        return self.journal.size > max(_CHECKPOINT_AT, self._checkpoint_size)

    async def checkpoint(self) -> None:
        """Save the state and begin a new journal file.

        Jobs may change meanwhile: replay ignores records that the saved state already contains.
        """
        assert self.journal is not None and self._pool is not None
        loop, store = self.ctx.loop, self.store
        try:
            texts = list(enumerate(store.texts.table))[self._texts_saved :]
            # A failed checkpoint may have begun a new file already.
            if self._is_large() or not self._overdue:
                self._rotating = True
                try:
                    await loop.run_in_executor(self._pool, self.journal.rotate, len(self.core.active))
                    entries = (entry for batch in self._pending for entry in batch.entries)
                    self._reaped = {entry.id: entry.why for entry in entries if isinstance(entry, JobReaped)}
                finally:
                    self._rotating = False
                    self._write()
            number = self.journal.number
            rows: list[tuple[int, str, bytes]] = []
            for index, job in enumerate(list(store.active.values())):
                if job.id in store.active:
                    rows.append((job.id, "", store.packed(job)))
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
            size = sum(len(data) for _, _, data in rows)
            # Jobs that became inactive while the active ones were packed are included.
            finished = {id: store.places[id] for id in self._unsaved if id in store.places}
            for index, id in enumerate(list(finished)):
                place, known = store.places.get(id), self.core.inactive.get(id)
                if place is not None and known is not None:
                    finished[id] = place
                    rows.append((id, str(known), store.spill.get(place)))
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
            texts += [entry for entry in enumerate(store.texts.table) if entry[0] >= self._texts_saved + len(texts)]
            purged = self._purged[:]
            await loop.run_in_executor(None, self.journal.checkpoint, number, rows, purged, texts, self._meta())
        except OSError as exc:
            if not self._overdue:
                self.ctx.log(logging.ERROR, f"checkpoint: {text_of(exc)}: the journal grows until it can be made")
            self._overdue = self.ctx.monotonic() + _CHECKPOINT_AGAIN
        else:
            self._overdue = 0.0
            self._checkpoint_size = size
            self._texts_saved += len(texts)
            for id, place in finished.items():
                # If the place has changed, a log of the job has grown, and the job must be saved again.
                if store.places.get(id, place) == place:
                    self._unsaved.pop(id, None)
            del self._purged[: len(purged)]
        finally:
            self._saving = False

    def _meta(self) -> dict[str, bytes]:
        core = self.core
        return {
            "queues": _encode(core.queues.save()),
            "zombies": _encode(self._reaped | core.zombies),
            "max_jobid": _encode(core.max_jobid),
        }

    def recover(self) -> None:
        """Load the checkpoint and replay the journal into an empty core and store."""
        journal = self.journal
        assert journal is not None
        recovered = Recovery(journal, self.core, self.store)
        self._unsaved, self._texts_saved = recovered.unsaved, recovered.texts_saved
        self._purged = array("Q", recovered.purged)
        if journal.is_new:
            self.ctx.log(logging.INFO, f"journal: {journal.folder} is new: there are no jobs of an earlier instance")
        if journal.torn:
            self.ctx.log(logging.WARNING, f"journal: {journal.torn} bytes of an unfinished write were dropped")
        for lost in (journal.missing, journal.damage):
            if lost:
                self.ctx.log(logging.ERROR, f"journal: {lost}")
        if recovered.illegible:
            where = "the damaged part of the journal" if journal.damage else f"{journal.db_path}, which is lost"
            self.ctx.log(logging.ERROR, f"journal: {recovered.illegible} jobs are lost: their data was in {where}")
        for id, why in recovered.left_out.items():
            self.ctx.log(logging.ERROR, f"journal: {jobid.encode(id)} cannot be rebuilt and is left out: {why}")

    async def close(self) -> None:
        """Write pending records, then close the journal."""
        self._flush()
        deadline = self.ctx.monotonic() + _DRAIN_TIMEOUT
        while self._busy() and self.ctx.monotonic() < deadline:
            if self.failing:
                # The event loop may not run timers any more.
                self._retrying = False
            self._write()
            self._sync()
            await asyncio.sleep(0.05 if self.failing else 0.001)
        if self._pending:
            # The records are lost, but requests still get their responses.
            self._release_effects()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self.journal is not None:
            self.journal.close()

    def _busy(self) -> bool:
        return bool(self._syncing or self._saving or self._pending or self._unsynced)

    def stats(self) -> dict[str, Any]:
        if self.journal is None:
            return {}
        return {
            "bytes": self.journal.size,
            "syncs": self.syncs,
            "longest_sync_ms": round(self.longest_sync * 1000, 3),
            "sync_times": self.sync_times.as_object(),
            "failing": self.failing,
        }


def _merged(batches: list[Batch]) -> Batch:
    """Merge batches, in order, so that watchers of a short job get its start and end in one message."""
    if len(batches) == 1:
        return batches[0]
    news: dict[Job, News] = {}
    for batch in batches:
        for job, first, events in batch.news:
            known = news.pop(job, None)
            news[job] = (job, first, events) if known is None else (job, known[1], known[2] + events)
    effects = [effect for batch in batches for effect in batch.effects]
    finished = [job for batch in batches for job in batch.finished]
    return Batch([], effects, list(news.values()), finished)
