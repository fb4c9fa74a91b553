"""Recovery of core and store from the files of an earlier run: the checkpoint, then the journal.

The earlier instance may have been killed. Invalid data stop the start or cost single jobs, which are logged and left
out. Files with invalid data are never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

import msgspec

from headrace.engine.broker.state.journal import Journal, JournalError, Saved
from headrace.engine.jobs.pack import Packed, Submission, unpack
from headrace.engine.jobs.record import Job, summary
from headrace.engine.jobs.storable import TOO_DEEP, is_deep
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.records import (
    Entry,
    EventsPosted,
    JobReaped,
    JobsPurged,
    JobSubmitted,
    LogAppended,
    LogsSaved,
    ResourcesSet,
    TextAdded,
)
from headrace.engine.modules.job_manager.replay import replay, restore, restore_inactive
from headrace.engine.modules.job_manager.store import LOGS, Store
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import INACTIVE, RUNNING

_decode = msgspec.msgpack.Decoder(list[Entry]).decode
_META = ("queues", "zombies", "max_jobid")
# The entries about one job.
_OF_JOB = (JobSubmitted, EventsPosted, ResourcesSet, LogsSaved, LogAppended, JobReaped)
# Raised while a job is rebuilt from data that were decoded but are invalid. The data may come from the submitter or
# from an earlier version.
_INVALID_DATA = (AttributeError, KeyError, RecursionError, TypeError)
# Extra stack frames beyond Python's limit. They suffice to decode all data that could be encoded.
_MORE_FRAMES = 500


class Recovery:
    """Fills an empty core and store.

    `unsaved` are finished jobs that are not in the checkpoint, `purged` are removed jobs that may still be in it.
    `texts_saved` counts the texts in the checkpoint, `illegible` the jobs whose data are missing. `left_out` maps jobs
    that could not be rebuilt to the reason.

    Raises JournalError if the checkpoint's database has invalid data, and OSError.
    """

    def __init__(self, journal: Journal, core: Core, store: Store) -> None:
        self.core = core
        self.store = store
        self.unsaved: dict[int, None] = {}
        self.purged: list[int] = []
        self.texts_saved = 0
        self.illegible = 0
        self.left_out: dict[int, str] = {}
        # Lines that users appended to logs of active jobs, in order. The log files may contain them already.
        self._appended: dict[int, list[LogAppended]] = {}
        saved = journal.load()
        try:
            self._load(saved)
        except JournalError:
            raise
        except Exception as exc:
            # Damaged bytes can cause any exception.
            raise journal.damaged(repr(exc)) from None
        for batch in journal.replay():
            for entry in self._entries(journal, batch):
                try:
                    self._replay(entry)
                except _INVALID_DATA as exc:
                    if not isinstance(entry, _OF_JOB):
                        raise
                    self._leave_out(entry.id, repr(exc))
        store.texts.fresh.clear()
        if self.left_out:
            core.running = sum(bool(job.state & RUNNING) for job in core.active.values())
        for job in store.active.values():
            job.shown = len(job.events)
        # If jobs may be missing, output files of unknown jobs are kept, since they may belong to those jobs.
        complete = not (self.illegible or self.left_out or journal.damage or journal.missing)
        _restore_output(store, core.max_jobid if complete else 0)
        self._complete_logs()

    def _load(self, saved: Saved) -> None:
        core, store = self.core, self.store
        for number, text in saved.texts:
            store.texts.restore(number, text)
        self.texts_saved = len(store.texts.table)
        meta = {key: msgspec.msgpack.decode(value, strict=False) for key, value in saved.meta.items() if key in _META}
        core.queues.restore(meta.get("queues", []))
        known: list[tuple[int, int]] = []
        for id, end, record in saved.jobs:
            end = end or self._restore_active(id, record)
            if end:
                known.append((int(end), id))
                store.restore(id, record)
        known.sort()
        store.order(id for _, id in known)
        restore_inactive(core, {id: number for number, id in known})
        # The zombies are saved after the jobs. A job that ended in between is a zombie here but was saved as active.
        # It is skipped: either its end is in the journal, or its end was never reported.
        zombies = ((int(id), text) for id, text in meta.get("zombies", {}).items())
        core.zombies.update((id, text) for id, text in zombies if id in core.inactive)
        core.max_jobid = max(core.max_jobid, meta.get("max_jobid", 0))

    def _restore_active(self, id: int, record: bytes) -> str:
        """Restore a job that was saved as active.

        Returns the job's summary if it had ended, but its end was not reported yet when it was saved. The journal
        begins after the end of such a job. Returns "" otherwise.
        """
        try:
            packed = unpack(record)
            job = self._rebuilt(id, packed)
        except _INVALID_DATA as exc:
            self._leave_out(id, repr(exc))
            return ""
        if job.state == INACTIVE:
            self.unsaved[id] = None
            return str(summary(job))
        job.r = packed.r
        self.store.add(job, packed.submission)
        restore(self.core, job)
        self.store.restore_logs(id, packed.logs)
        return ""

    def _rebuilt(self, id: int, packed: Packed) -> Job:
        job = Job(id, self.store.original(packed.submission))
        for event in packed.events:
            job.apply(event)
        return job

    def _leave_out(self, id: int, why: str) -> None:
        """Leave out a job that cannot be rebuilt, so that the others can be used. Its id is not reused."""
        core = self.core
        for known in (core.active, core.inactive, core.zombies, self.unsaved):
            known.pop(id, None)
        core.finished.clear()
        core.max_jobid = max(core.max_jobid, id)
        self.store.leave_out(id)
        self.left_out[id] = why

    def _entries(self, journal: Journal, batch: bytes) -> list[Entry]:
        """The entries of a batch. A job with an entry that is nested too deep is left out."""
        try:
            return _entries(journal, batch)
        except RecursionError:
            with _more_frames():
                entries = _entries(journal, batch)
        for entry in entries:
            if isinstance(entry, _OF_JOB) and is_deep(msgspec.structs.astuple(entry)):
                self._leave_out(entry.id, f"an entry {TOO_DEEP}")
        return entries

    def _replay(self, entry: Entry) -> None:
        core, store = self.core, self.store
        match entry:
            case TextAdded(number, text):
                store.texts.restore(number, text)
            case LogsSaved(id, logs):
                self._appended.pop(id, None)
                if id in store.active:
                    store.restore_logs(id, logs)
            case LogAppended(id, (name, size, lines)):
                if id in store.active:
                    self._appended.setdefault(id, []).append(entry)
                elif id in store:
                    log = store.guest_log(id, name)
                    if log is None or log.size <= size:
                        store.append_to_any(id, name, lines)
                    self.unsaved[id] = None
            case JobSubmitted(id, submission):
                if id not in core.active and id not in core.inactive and id not in self.left_out:
                    self._replay_new(id, submission)
            case EventsPosted(id, (first, _)) if id in core.active and first > len(core.active[id].events):
                # The events between are missing.
                self._leave_out(id, "some of its events were in a damaged part of the journal")
            case JobsPurged(_, ids):
                replay(core, entry)
                store.forget(ids)
                self.purged.extend(ids)
                for id in ids:
                    self.unsaved.pop(id, None)
            case _:
                replay(core, entry)
                for job in core.finished:
                    store.finish(job)
                    self.unsaved[job.id] = None
                core.finished.clear()

    def _complete_logs(self) -> None:
        """Add lines that users appended to logs of active jobs, unless the log files contain them.

        A log may be shorter than before the restart, because earlier output of tasks may have been only in memory.
        """
        store = self.store
        for id, entries in self._appended.items():
            if id not in store.active:
                continue
            known = {name: log.size for name in LOGS if (log := store.guest_log(id, name)) is not None}
            for _, (name, size, lines) in map(msgspec.structs.astuple, entries):
                if size >= known.get(name, 0):
                    store.append(id, name, lines)

    def _replay_new(self, id: int, submission: Submission) -> None:
        try:
            job = Job(id, self.store.original(submission))
        except IndexError:
            # The reference text of the submission was in a database that no longer exists, or in a damaged part of the
            # journal.
            self.illegible += 1
        else:
            self.store.add(job, submission)
            restore(self.core, job)


@contextlib.contextmanager
def _more_frames() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MORE_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _entries(journal: Journal, batch: bytes) -> list[Entry]:
    """The entries of a batch. Raises JournalError for an unknown kind of entry.

    The frame of the batch is intact, so an unknown kind is not damage: another version wrote it.
    """
    try:
        return _decode(batch)
    except msgspec.DecodeError as exc:
        text = f"the journal in {journal.folder} has a record that only another version of Headrace reads: {exc}"
        raise JournalError(errno.EIO, text) from None


def _restore_output(store: Store, highest: int) -> None:
    """Add output from files to active jobs; delete files of unknown jobs up to the id `highest` (0: none).

    The sizes of a job's logs are only recorded in a checkpoint and at the job's end. Output that was written between
    the last checkpoint and the broker's death is only in the files.
    """
    try:
        names = os.listdir(store.output)
    except OSError:
        return
    for file in names:
        found = _log_of(file)
        if found is None:
            continue
        id, name = found
        # A file that cannot be read or removed must not prevent the start.
        with contextlib.suppress(OSError):
            if id in store.active:
                store.take_up(id, name)
            elif id not in store and id <= highest:
                os.unlink(os.path.join(store.output, file))


def _log_of(file: str) -> tuple[int, str] | None:
    """The job id and log name of a log file; None for any other file."""
    parts = file.split(".", 4)
    if len(parts) < 5 or parts[4] not in LOGS:
        return None
    text = ".".join(parts[:4])
    try:
        id = jobid.parse(text)
    except ValueError:
        return None
    return (id, parts[4]) if jobid.encode(id, "dothex") == text else None
