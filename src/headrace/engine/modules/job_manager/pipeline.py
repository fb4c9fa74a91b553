"""The path of a step's output: its records are written, then its effects are released.

All records of a loop turn are one batch. With a journal, the batch is written at once, which survives the end of this
process, and synced in a thread, which survives that of the machine; records in the meantime are part of the next sync.
Effects wait for the sync. Only the starts of an instance with one broker do not: the tasks run on the same machine, so
a power cut that loses a start has ended its tasks as well, and the job starts again as after the loss of a node.
Without a journal, effects are released at once.

An error of the disk delays all effects, so that no effect is based on lost records. A disk that is merely full seldom
leads to this: the journal has a reserve, new jobs are refused first, and then output is dropped.
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

# Bytes of a journal file after which a checkpoint is made and a new file begun.
_CHECKPOINT_AT = 16 << 20
# Active jobs that are packed in one slice of a checkpoint, between which the loop runs.
_SLICE = 64
# Seconds for which records that only watchers wait for are collected before a sync, and seconds between the starts of
# two such syncs, as each costs half as much as a job.
_SYNC_DELAY = 0.004
_SYNC_EVERY = 0.020
# Seconds until a write, or a checkpoint, is retried after an error of the disk.
_RETRY = 1.0
_CHECKPOINT_AGAIN = 10.0
# Seconds for which an error of the disk delays all effects. After that they are released, as the instance could
# otherwise not be ended; but no job starts without its record in the journal, and no id is returned.
_HOLD = 10.0
# Seconds for which the end of the module waits for the disk.
_DRAIN_TIMEOUT = 10.0

_encode = msgspec.msgpack.Encoder().encode
# What is raised for values that have no form in msgpack: large numbers, deep nesting, text that is none.
_UNPACKABLE = (OverflowError, RecursionError, TypeError, ValueError)

# The news of a batch on one job: the job, the index of its first new event, and its new events.
News = tuple[Job, int, list[Event]]


class Batch(NamedTuple):
    """The output of one turn: entries for the journal, and effects for when they are durable."""

    entries: list[Entry]
    effects: list[Effect]
    news: list[News]
    finished: list[Job]


class Pipeline:
    """`request(effects)` is called at the end of each turn, `release(batch)` once a batch is durable, `start(job)` for
    its starts, then or before; all in order."""

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
        # Seconds of syncs.
        self.sync_times = Histogram()
        self._start_early = journal is not None and ctx.alone
        self._pending: list[Batch] = []
        # Bytes of accepted jobs that are not written yet.
        self._promised = 0
        # Batches that are written, but may not be on the disk.
        self._unsynced: list[Batch] = []
        self._syncing = False
        self._synced_at = 0.0
        self._rotating = False
        self._pool = ThreadPoolExecutor(1, "journal") if journal is not None else None
        self._unsaved: dict[int, None] = {}
        # Purged jobs that the database still has: an array, since a number each would be an object among others.
        self._purged = array("Q")
        # Jobs that were waited for since the journal's file was begun, with their results. A checkpoint has them as not
        # waited for, since the record in that file tells whether the result was released.
        self._reaped: dict[int, str] = {}
        ctx.watch_tables(lambda: (core.active, core.inactive, self._unsaved))
        self._texts_saved = 0
        self._soon = False
        self._saving = False
        # The time at which a failed checkpoint is retried.
        self._overdue = 0.0

    def touch(self) -> None:
        """The core has got an input in this turn."""
        # The scheduler may respond within the turn, so that an end and the start that follows share one write.
        self.ctx.at_flush(self._ask)
        self.ctx.at_turn_end(self._flush)

    def refusal(self, jobs: int, size: int) -> tuple[int, str] | None:
        """Why `jobs` new jobs with submissions of `size` bytes are refused (errno, text), or None.

        None reserves the room for them.
        """
        if self.failing:
            return self._why
        if not (self._pending or self.core.has_news()):
            # What was promised since the last write has come to nothing.
            self._promised = 0
        if self.journal is not None:
            # The reserve of a full disk is for ends of jobs; a new job's output would be lost.
            full = jobs and disk.full(self.journal.folder)
            if full or not self._room(len(self.core.active) + jobs, size):
                return (errno.ENOSPC, f"{self.journal.folder} has no room for more: {disk.FULL}")
        self._promised += size
        return None

    def take_back(self, size: int) -> None:
        """What `refusal` has reserved is not needed, as the request was refused for another reason."""
        self._promised = max(0, self._promised - size)

    def _room(self, jobs: int, size: int) -> bool:
        # While the journal's file is replaced, the new one has room.
        return self.journal is None or self._rotating or self.journal.room(jobs, self._promised + size)

    def _ask(self) -> None:
        if self.core.requests:
            requests, self.core.requests = self.core.requests, []
            self.request(requests)

    def _flush(self) -> None:
        core, store = self.core, self.store
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
        # Purged jobs are taken out of what this adds.
        self._unsaved.update((job.id, None) for job in finished)
        for record in records:
            match record:
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
        """Remove purged jobs from the database with the next checkpoint, or keep them out of it."""
        self._purged.extend(ids)
        for id in ids:
            self._unsaved.pop(id, None)

    # -- the journal

    def _write(self) -> None:
        """Append pending records, and begin a sync or schedule one."""
        if self._rotating or self._retrying or not (self._pending or self.failing):
            return
        assert self.journal is not None
        batches, self._pending = self._pending, []
        entries = [entry for batch in batches for entry in batch.entries]
        # After an error, an empty batch is written as well, to test whether the disk works again.
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
        """The entries for the journal. One that cannot be encoded is an error of ours, and costs the others nothing."""
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
        # The loop's own futures would cost ten times as much.
        self.ctx.loop.call_soon_threadsafe(self._synced, failure, batches)

    def _synced(self, exc: OSError | None, batches: list[Batch]) -> None:
        self._syncing = False
        self.syncs += 1
        took = self.ctx.monotonic() - self._synced_at
        self.longest_sync = max(self.longest_sync, took)
        self.sync_times.observe(took)
        if exc is not None:
            # After a failed sync, the state of these records on the disk is unknown, and so is that of records written
            # since, as the kernel reports an error once. They are written again; replay ignores records that it has
            # seen.
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
        """The disk is full or broken: running jobs continue, their effects wait here, and new jobs are refused."""
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
        """Release all effects except returned ids, and except starts of jobs that were canceled since."""
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
        return self.journal.size > _CHECKPOINT_AT

    async def checkpoint(self) -> None:
        """Save the state and begin a new journal file. Jobs may change meanwhile, as replay ignores records it has
        seen.
        """
        assert self.journal is not None and self._pool is not None
        loop, store = self.ctx.loop, self.store
        try:
            texts = list(enumerate(store.texts.table))[self._texts_saved :]
            # A failed checkpoint may have begun a new file.
            if self.journal.size > _CHECKPOINT_AT or not self._overdue:
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
            self._texts_saved += len(texts)
            for id, place in finished.items():
                # A log of the job may have grown since its record was read.
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
            where = "the damaged part" if journal.damage else f"a lost {journal.db_path}"
            self.ctx.log(logging.ERROR, f"journal: {recovered.illegible} jobs are lost, which need what was in {where}")
        for id, why in recovered.left_out.items():
            self.ctx.log(logging.ERROR, f"journal: {jobid.encode(id)} cannot be rebuilt and is left out: {why}")

    async def close(self) -> None:
        """Write what is pending, then close the journal."""
        self._flush()
        deadline = self.ctx.monotonic() + _DRAIN_TIMEOUT
        while self._busy() and self.ctx.monotonic() < deadline:
            if self.failing:
                # The loop may run no timers any more.
                self._retrying = False
            self._write()
            self._sync()
            await asyncio.sleep(0.05 if self.failing else 0.001)
        if self._pending:
            # Requests get their responses nevertheless.
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
    """Several batches as one, in order, so that watchers of a short job get its start and end in one message."""
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
