"""From the files of an instance that ended, or was killed, to a core and a store as they were: a checkpoint, then the
journal. What of the files makes no sense is refused or left out, with a word on it, and never written over.
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
# What comes of a job whose data were read, but make no sense: they are its submitter's, or an earlier version's.
_NO_SENSE = (AttributeError, KeyError, RecursionError, TypeError)
# Frames beyond Python's limit, in which all data can be decoded that could be encoded.
_MORE_FRAMES = 500


class Recovery:
    """Fills an empty core and store.

    `unsaved` are finished jobs that no checkpoint has, and `purged` are removed jobs that a checkpoint may have.
    `texts_saved` counts the texts of the checkpoint, and `illegible` the jobs whose data are missing. `left_out` has
    the jobs that could not be rebuilt, and why.

    Raises JournalError if what the checkpoint's database has cannot be used, and OSError.
    """

    def __init__(self, journal: Journal, core: Core, store: Store) -> None:
        self.core = core
        self.store = store
        self.unsaved: dict[int, None] = {}
        self.purged: list[int] = []
        self.texts_saved = 0
        self.illegible = 0
        self.left_out: dict[int, str] = {}
        # What users appended to logs of active jobs, in order; the files of these logs may have it already.
        self._appended: dict[int, list[LogAppended]] = {}
        saved = journal.load()
        try:
            self._load(saved)
        except JournalError:
            raise
        except Exception as exc:
            # Whatever can be wrong with bytes that we did not write.
            raise journal.damaged(repr(exc)) from None
        for batch in journal.replay():
            for entry in self._entries(journal, batch):
                try:
                    self._replay(entry)
                except _NO_SENSE as exc:
                    if not isinstance(entry, _OF_JOB):
                        raise
                    self._leave_out(entry.id, repr(exc))
        store.texts.fresh.clear()
        if self.left_out:
            core.running = sum(bool(job.state & RUNNING) for job in core.active.values())
        for job in store.active.values():
            job.shown = len(job.events)
        # While jobs are missing that were there once, no output is taken for nobody's.
        complete = not (self.illegible or self.left_out or journal.damage or journal.missing)
        _take_up_output(store, core.max_jobid if complete else 0)
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
        # A job may end between the saving of itself and that of these; then its end is in the journal, or was not told.
        zombies = ((int(id), text) for id, text in meta.get("zombies", {}).items())
        core.zombies.update((id, text) for id, text in zombies if id in core.inactive)
        core.max_jobid = max(core.max_jobid, meta.get("max_jobid", 0))

    def _restore_active(self, id: int, record: bytes) -> str:
        """Take a job that was active; its summary if it was not any more, but nobody had been told when it was saved:
        the journal that follows begins after its end.
        """
        try:
            packed = unpack(record)
            job = self._rebuilt(id, packed)
        except _NO_SENSE as exc:
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
        """Go on without a job that cannot be rebuilt, so that the others are there. Its id is not given again."""
        core = self.core
        for known in (core.active, core.inactive, core.zombies, self.unsaved):
            known.pop(id, None)
        core.finished.clear()
        core.max_jobid = max(core.max_jobid, id)
        self.store.leave_out(id)
        self.left_out[id] = why

    def _entries(self, journal: Journal, batch: bytes) -> list[Entry]:
        """The entries of a batch, of which one may nest deeper than can be decoded: its job is left out."""
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
                # What it has done in between is unknown.
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
        """Add to the logs of active jobs what users appended and no file has. A log may be shorter than it was, as what
        tasks wrote before it may have been in memory only.
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
            # Its text was in a database that is not there any more, or in a damaged part of the journal.
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
    """The entries of a batch. Its frame is whole, so an unknown kind was written so. Raises JournalError for one."""
    try:
        return _decode(batch)
    except msgspec.DecodeError as exc:
        text = f"the journal in {journal.folder} has a record that only another version of Headrace reads: {exc}"
        raise JournalError(errno.EIO, text) from None


def _take_up_output(store: Store, highest: int) -> None:
    """Take up the output in files of active jobs, and remove that of unknown jobs up to the id `highest` (0: none).

    The journal has the sizes of a job's logs when the job ends, or is part of a checkpoint. What was written to a file
    since, before the broker was killed, is in the file alone.
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
        # A file that cannot be read or removed is no reason not to start.
        with contextlib.suppress(OSError):
            if id in store.active:
                store.take_up(id, name)
            elif id not in store and id <= highest:
                os.unlink(os.path.join(store.output, file))


def _log_of(file: str) -> tuple[int, str] | None:
    """The job and the name of the log that a file is for; None for a file of another name."""
    parts = file.split(".", 4)
    if len(parts) < 5 or parts[4] not in LOGS:
        return None
    text = ".".join(parts[:4])
    try:
        id = jobid.parse(text)
    except ValueError:
        return None
    return (id, parts[4]) if jobid.encode(id, "dothex") == text else None
