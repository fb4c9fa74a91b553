"""The job store: jobspec, R, eventlog and guest logs of every job, active or finished (RFC 16).

Job data is stored nowhere else. Active jobs are objects. At the event `clean`, the job is packed and moved out of
memory. Lookups use RFC 16 keys (`jobspec`, `R`, `eventlog`, `J`, `guest.exec.eventlog` ...).
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from headrace.engine.jobs.pack import Packed, SavedLog, Submission, Texts, event_line, events_of, join_j, pack, unpack
from headrace.engine.jobs.record import Event, Job, current_r, updated_jobspec
from headrace.engine.modules.job_manager.logs import Log, Spill
from headrace.formats.spec import jobid, stdio
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.os_error import reason

GUEST_LOGS = ("guest.exec.eventlog", "guest.output", "guest.input")
# The main eventlog consists of the job's events. The log of this name has only the entries that users appended, which
# do not affect the job's state.
MAIN_LOG = "eventlog"
LOGS = (*GUEST_LOGS, MAIN_LOG)
_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()
_read_submission = msgspec.msgpack.Decoder(Submission).decode
# A log of an inactive job up to this size, in bytes, is stored in the packed record. A longer log remains in its file.
_INLINE = 64 << 10
# The same limit when the disk is nearly full, and the logs that may be dropped then.
_INLINE_SHORT = 512
_DISPENSABLE = ("guest.output", "guest.input")
# The largest value in a response, in bytes. It is limited because a response is copied about six times in memory.
MOST_TEXT = 64 << 20


class Store:
    """The data of all jobs. `active` holds jobs until finish() packs them.

    Files are created below `folder`, log files in its subfolder `output`. `tell(id, why)` is called for a job whose
    output is lost.
    """

    def __init__(
        self, folder: str, tell: Callable[[int, str], None] = lambda _id, _text: None, output: str = "output"
    ) -> None:
        self.tell = tell
        self.active: dict[int, Job] = {}
        self.folder = folder
        self.output = os.path.join(folder, output)
        self.texts = Texts()
        # Submissions of active jobs, or their places in `spill` after put_away().
        self.submissions: dict[int, Submission | int] = {}
        self.logs: dict[int, dict[str, Log]] = {}
        self.places: dict[int, int] = {}
        self.spill = Spill(folder)
        # The last unpacked job, cached because a lookup of several keys, or a watch of several logs, reads the same
        # job repeatedly.
        self._recent: tuple[int, Packed] | None = None

    def __contains__(self, id: object) -> bool:
        return id in self.active or id in self.places

    def log(self, id: int, name: str) -> Log:
        """A guest log of an active job, created if necessary."""
        logs = self.logs.get(id)
        if logs is None:
            logs = self.logs[id] = {}
        log = logs.get(name)
        if log is None:
            log = logs[name] = Log(self._log_path(id, name))
        return log

    def append(self, id: int, name: str, lines: bytes) -> None:
        """Append complete lines to a guest log of an active job.

        Lines are lost if neither memory nor disk has room for them. The loss is reported once, in the log and to
        `tell`.
        """
        log = self.log(id, name)
        was_cut = log.cut
        if not log.append(lines) and not was_cut:
            self._report_lost(id, name, log)

    def append_to_any(self, id: int, name: str, lines: bytes) -> int:
        """Append complete lines to a log of any job; returns the previous size of the log in bytes.

        Raises OSError if neither memory nor disk has room.
        """
        log = self.log(id, name) if id in self.active else self.guest_log(id, name) or Log(self._log_path(id, name))
        size, cut = log.size, log.cut
        if not log.append(lines):
            # The user gets an error, so `cut` is restored: it only reports lost output of the job's processes.
            why, log.cut = log.cut, cut
            raise OSError(errno.ENOSPC, f"{self.folder}: {why}")
        record = self.record(id) if id not in self.active else None
        if record is not None:
            place = self.places[id]
            logs = {**record.logs, name: _saved(log, _INLINE)}
            self.places[id] = self.spill.put(pack(Packed(record.submission, record.events, record.r, logs)))
            self.spill.drop(place)
            self._recent = None
        return size

    def _report_lost(self, id: int, name: str, log: Log) -> None:
        text = f"output is lost: {self.folder}: {log.cut}"
        if name == "guest.output":
            log.append_in_memory(event_line((time.time(), "log", stdio.log(4, text, None, "output"))))
        self.tell(id, text)

    def _log_path(self, id: int, name: str) -> str:
        return os.path.join(self.output, f"{jobid.encode(id, 'dothex')}.{name}")

    # -- from active to finished

    def add(self, job: Job, submission: Submission) -> None:
        self.active[job.id] = job
        self.submissions[job.id] = submission

    def put_away(self, job: Job) -> None:
        """Move the submission and the jobspec of an active job to disk."""
        submission = self.submissions[job.id]
        if isinstance(submission, Submission):
            self.submissions[job.id] = self.spill.put(_MSGPACK.encode(submission))
            job.put_away(partial(self._current_jobspec, job))

    def _current_jobspec(self, job: Job) -> dict[str, Any]:
        return _updated(self.original(self.submission(job.id)), job.events)

    def size_of_logs(self, id: int) -> int:
        """Bytes of the guest logs of an active job that are in memory."""
        return sum(log.size - log.spilled for log in self.logs.get(id, {}).values())

    def saved_logs(self, id: int, short: bool = False) -> dict[str, SavedLog]:
        """The guest logs of an active job in the form of a record. Long logs are written to their files.

        If `short` is true, output is dropped if its file cannot be written.
        """
        out: dict[str, SavedLog] = {}
        longest = _INLINE_SHORT if short else _INLINE
        for name, log in self.logs.get(id, {}).items():
            try:
                out[name] = _saved(log, longest)
            except OSError as exc:
                # A short log still fits into the record.
                if short and name in _DISPENSABLE and len(log.tail) > _INLINE_SHORT:
                    log.trim(reason(exc))
                    self._report_lost(id, name, log)
                out[name] = (log.spilled, log.tail) if log.spilled else log.tail
        return out

    def packed(self, job: Job) -> bytes:
        """The data of an active job as one record."""
        return pack(Packed(self.submission(job.id), job.events, job.r, self.saved_logs(job.id)))

    def finish(self, job: Job) -> None:
        """Move an inactive job out of memory."""
        self.places[job.id] = self.spill.put(self.packed(job))
        del self.active[job.id]
        place = self.submissions.pop(job.id)
        if isinstance(place, int):
            self.spill.drop(place)
        self.logs.pop(job.id, None)

    def restore(self, id: int, record: bytes) -> None:
        """Add an inactive job from the database."""
        self.places[id] = self.spill.put(record)

    def order(self, ids: Iterable[int]) -> None:
        """Sort the inactive jobs of restore() by the order of their ends."""
        self.places = {id: self.places[id] for id in ids}

    def restore_logs(self, id: int, logs: dict[str, SavedLog]) -> None:
        """Add the saved logs of an active job."""
        self.logs[id] = {name: self._restored(id, name, saved) for name, saved in logs.items()}

    def _restored(self, id: int, name: str, saved: SavedLog) -> Log:
        if isinstance(saved, bytes):
            saved = (0, saved)
        elif isinstance(saved, int):
            saved = (saved, b"")
        log = Log(self._log_path(id, name), saved[0])
        log.append_in_memory(saved[1])
        return log

    def take_up(self, id: int, name: str) -> None:
        """Extend an active job's log by the lines in its file beyond the saved size. Raises OSError."""
        log = self.log(id, name)
        log.take_up()
        if not log.size:
            del self.logs[id][name]

    def leave_out(self, id: int) -> None:
        """Remove a job from memory."""
        for known in (self.active, self.submissions, self.logs, self.places):
            known.pop(id, None)
        self._recent = None

    def forget(self, ids: Iterable[int]) -> None:
        """Remove inactive jobs and their files."""
        for id in ids:
            try:
                record = self.record(id)
            except RecursionError:
                # The record is nested too deep to be decoded. Earlier versions accepted such jobs.
                record = None
            place = self.places.pop(id, None)
            if place is None:
                continue
            for name, saved in record.logs.items() if record is not None else ():
                self._restored(id, name, saved).discard()
            self.spill.drop(place)
            self._recent = None

    def record(self, id: int) -> Packed | None:
        """The record of an inactive job; None if there is none."""
        if self._recent is not None and self._recent[0] == id:
            return self._recent[1]
        place = self.places.get(id)
        if place is None:
            return None
        record = unpack(self.spill.get(place))
        self._recent = (id, record)
        return record

    # -- lookups

    def submission(self, id: int) -> Submission:
        """The submission of a job. Raises KeyError for an unknown job."""
        found = self.submissions.get(id)
        if isinstance(found, int):
            return _read_submission(self.spill.get(found))
        if found is None:
            record = self.record(id)
            if record is None:
                raise KeyError(id)
            found = record.submission
        return found

    def events(self, id: int) -> list[Event]:
        """The events of the main eventlog that may be shown (are durable). Raises KeyError for an unknown job."""
        job = self.active.get(id)
        if job is not None:
            return job.events[: job.shown]
        record = self.record(id)
        if record is None:
            raise KeyError(id)
        return record.events

    def main_log(self, id: int) -> list[Event]:
        """The main eventlog with the entries appended by users, sorted by time.

        Raises KeyError for an unknown job.
        """
        events = self.events(id)
        log = self.guest_log(id, MAIN_LOG)
        if log is None:
            return events
        pending = deque(events)
        merged = [pending.popleft()]
        for entry in events_of(log.text().decode()):
            while pending and pending[0][0] <= entry[0]:
                merged.append(pending.popleft())
            merged.append(entry)
        return [*merged, *pending]

    def owner(self, id: int) -> int:
        """The user id of a job. Raises KeyError for an unknown job."""
        job = self.active.get(id)
        if job is not None:
            return job.userid
        return int((self.events(id)[0][2] or {})["userid"])

    def jobspec(self, id: int, current: bool) -> dict[str, Any]:
        """The jobspec for clients: as ingest stored it or, if `current`, with all updates. Raises KeyError.

        As in flux-core, the environment is left out: only `J` contains it.
        """
        job = self.active.get(id)
        if job is not None and current:
            return js.without_environment(job.jobspec)
        jobspec = self.original(self.submission(id))
        if current:
            jobspec = _updated(jobspec, self.events(id))
        return js.without_environment(jobspec)

    def text(self, submission: Submission) -> bytes:
        """The jobspec as it was submitted, byte for byte."""
        return self.texts.decode(submission.text, submission.environment)

    def original(self, submission: Submission) -> dict[str, Any]:
        """The jobspec as ingest stored it, with the environment, for the job's start."""
        jobspec: dict[str, Any] = msgspec.json.decode(self.text(submission))
        return updated_jobspec(jobspec, submission.updates) if submission.updates else jobspec

    def r(self, id: int, current: bool) -> dict[str, Any] | None:
        """R as an object, None before there is one; raises KeyError for an unknown job."""
        job = self.active.get(id)
        if job is not None:
            return job.r
        record = self.record(id)
        if record is None:
            raise KeyError(id)
        if record.r is None or not current:
            return record.r
        return current_r(record.r, record.events)

    def guest_log(self, id: int, name: str) -> Log | None:
        """A guest log of any job; None if nothing was written to it."""
        if id in self.active:
            return self.logs.get(id, {}).get(name)
        record = self.record(id)
        if record is None or name not in record.logs:
            return None
        return self._restored(id, name, record.logs[name])

    def guest_names(self, id: int) -> list[str]:
        if id in self.active:
            return list(self.logs.get(id, {}))
        record = self.record(id)
        return list(record.logs) if record is not None else []

    def lookup(self, id: int, key: str) -> str:
        """The value of an RFC 16 key as text, without later updates.

        Raises KeyError if the key does not exist, OSError(EFBIG) if the value is too long.
        """
        if key == "eventlog":
            return b"".join(map(event_line, self.main_log(id))).decode("utf-8", "surrogateescape")
        if key == "jobspec":
            return _JSON.encode(self.jobspec(id, False)).decode("utf-8", "surrogateescape")
        if key == "R":
            r = self.r(id, False)
            if r is None:
                raise KeyError(key)
            return _JSON.encode(r).decode()
        if key == "J":
            submission = self.submission(id)
            return join_j(submission.head, self.text(submission), submission.tail)
        log = self.guest_log(id, key)
        if log is None:
            raise KeyError(key)
        if log.size > MOST_TEXT:
            text = f"{key} has {log.size >> 20} MiB, more than one answer may ({MOST_TEXT >> 20} MiB): watch it instead"
            raise OSError(errno.EFBIG, text)
        return log.text().decode("utf-8", "surrogateescape")

    def keys(self, id: int) -> list[str]:
        """The RFC 16 keys that a job has."""
        keys = {"J", MAIN_LOG, "jobspec", *self.guest_names(id)}
        if self.r(id, False) is not None:
            keys.add("R")
        return sorted(keys)


def _updated(jobspec: dict[str, Any], events: Iterable[Event]) -> dict[str, Any]:
    """A jobspec with the updates of an eventlog."""
    for _, name, context in events:
        if name == "jobspec-update" and context:
            jobspec = updated_jobspec(jobspec, context)
    return jobspec


def _saved(log: Log, longest: int) -> SavedLog:
    """A log in the form of a record; above `longest` bytes, it is written to its file. Raises OSError."""
    if log.spilled or log.size > longest:
        log.spill()
        return log.spilled
    return log.tail
