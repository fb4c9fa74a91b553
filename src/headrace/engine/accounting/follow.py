"""Keeps the database and the policy of an instance up to date: books jobs as they end, computes fair share, pushes.

The journal of the job manager names the jobs that end. Their records are read and booked in chunks, each in one
transaction. After a crash of any process, the jobs that ended since the last booked one are listed, and those without a
mark are booked (see `usage.py`), so that each job is booked once.
"""

from __future__ import annotations

import errno
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from headrace.engine.accounting import dialect, fair_share, jobs, usage
from headrace.engine.accounting.database import need_own_tables
from headrace.engine.accounting.push import Pusher
from headrace.engine.accounting.running import Running, of_all_clusters
from headrace.storage.database import Database, DatabaseError
from headrace.wire.client.handle import Handle, Rpc
from headrace.wire.client.reactor import Reactor, Timer

# The event of the job manager when a policy is loaded.
POLICY_LOADED = "jobtap-load"
# Seconds for which ended jobs, and changes of tables, are gathered.
_DELAY = 0.1
# Seconds until another attempt after an error of the database or the instance; they double while errors go on.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_NO_JOB = -1


class Settings(Struct, frozen=True):
    """Seconds between two computations of fair share (0: none), and whether usage of running jobs counts for it."""

    interval: float = 60.0
    count_running: bool = False


class Follower:
    """The bookkeeping of one instance. Its callbacks run in `reactor`; it makes its calls through `handle`.

    `now` returns the seconds since the epoch.
    """

    def __init__(
        self,
        handle: Handle,
        reactor: Reactor,
        data: Database,
        settings: Settings,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.handle = handle
        self.reactor = reactor
        self.data = data
        self.settings = settings
        self.now = now
        self.pusher = Pusher(handle)
        self.running = Running(handle) if settings.count_running else None
        # Jobs that have ended and are not booked, oldest first.
        self._ended: deque[int] = deque()
        # False until the jobs that ended before the journal was opened are found. They are booked first, since what is
        # booked decides where the next listing begins.
        self._resumed = False
        self._booking: Timer | None = None
        self._sharing: Timer | None = None
        # Whether tables were changed since fair share was computed, and the state of the database at that time.
        self._changed = True
        self._version = ""
        self._has_policy = True
        self._booked = self._shared = 0
        self._pause = _FIRST_PAUSE
        # Whether jobs of the table may have to be booked anew.
        self._recount = True

    def start(self) -> None:
        self.handle.subscribe(POLICY_LOADED)
        self._follow()
        if self.settings.interval:
            self.reactor.add_timer(self.settings.interval, self._share_regularly, self.settings.interval)

    def stats(self) -> dict[str, int]:
        """Jobs that were booked since the start, jobs that wait for it, and computations of fair share."""
        return {"booked": self._booked, "unbooked": len(self._ended), "shared": self._shared}

    def changed(self, method: str) -> None:
        """Note that a request has changed tables."""
        self._changed = True
        if method == "clear_usage":
            self._recount = True
            self._schedule_booking(_DELAY)
        self._schedule_sharing(_DELAY)

    def policy_loaded(self) -> None:
        """Fill a policy that was just loaded."""
        self.pusher.forget()
        self._changed = self._has_policy = True
        self._schedule_sharing(0.0)

    def _next_pause(self) -> float:
        """Seconds until another attempt."""
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        return pause

    # -- booking

    def _follow(self) -> None:
        self._resumed = False
        self.handle.stream("job-manager.events-journal", {"full": False, "allow": ["clean"]}).then(self._journal)

    def _journal(self, call: Rpc) -> None:
        try:
            body = call.get()
        except OSError as exc:
            if exc.errno not in (errno.ENODATA, errno.ENOSYS):
                _warn(f"job-manager.events-journal: {exc}")
            # The job manager is being reloaded. What ended meanwhile is found by the listing that follows.
            self.reactor.add_timer(self._next_pause(), self._follow)
            return
        if body["id"] == _NO_JOB:
            self._resume()
        else:
            self._ended.append(body["id"])
            self._schedule_booking(_DELAY)

    def _resume(self) -> None:
        """Find the jobs that ended before the journal was opened and are not booked."""
        try:
            need_own_tables(self.data)
            with self.data.transaction(locked=True):
                booked = usage.marked(self.data)
                since = usage.resume_point(self.data) or jobs.last_end(self.data)
            missed = [id for _, id in jobs.ended_since(self.handle, since) if str(id) not in booked]
        except (OSError, DatabaseError) as exc:
            _warn(f"jobs that ended before: {exc}")
            self.reactor.add_timer(self._next_pause(), self._resume)
            return
        self._ended.extendleft(reversed(missed))
        self._resumed = True
        self._schedule_booking(0.0)

    def _schedule_booking(self, after: float) -> None:
        if self._resumed and self._booking is None:
            self._booking = self.reactor.add_timer(after, self._book)

    def _book(self) -> None:
        """Book a chunk of the jobs that have ended."""
        self._booking = None
        if not self._resumed:
            return
        chunk = [self._ended[at] for at in range(min(jobs.CHUNK, len(self._ended)))]
        try:
            self._book_jobs(chunk)
        except (OSError, DatabaseError, ValueError) as exc:
            _warn(f"{len(self._ended)} jobs are not booked yet: {exc}")
            self._schedule_booking(self._next_pause())
            return
        self._pause = _FIRST_PAUSE
        for _ in chunk:
            self._ended.popleft()
        if self._ended:
            self._schedule_booking(0.0)
        elif not self._version:
            self._schedule_sharing(0.0)

    def _book_jobs(self, ids: Iterable[int]) -> None:
        found = [job for some in jobs.read(self.handle, ids) for job in some]
        with self.data.transaction(locked=True):
            jobs.insert(self.data, found)
            if self._recount:
                booked = usage.update(self.data, self.now())
            elif found:
                booked = usage.book(self.data, [job.id for job in found], self.now())
            else:
                return
        self._recount = False
        self._booked += booked
        self._changed = self._changed or booked > 0

    # -- fair share

    def _schedule_sharing(self, after: float) -> None:
        if self.settings.interval and self._sharing is None:
            self._sharing = self.reactor.add_timer(after, self._share)

    def _share_regularly(self) -> None:
        # After an error, the next attempt is scheduled already.
        if self._sharing is None:
            self._share()

    def _share(self) -> None:
        """Compute fair share if anything has changed, and send changes to the policy."""
        self._sharing = None
        try:
            with self.data.transaction(locked=True):
                version = dialect.state(self.data)
                rolled = usage.roll(self.data, self.now())
                if not (self._changed or rolled or version != self._version or self.running is not None):
                    return
                running = self.running.usage(self.data, self.now()) if self.running is not None else {}
                fair_share.update(self.data, of_all_clusters(self.data, running, self.now()))
            self._shared += 1
            if self._has_policy:
                self._has_policy = self.pusher.push(self.data)
            self._changed, self._version, self._pause = False, version, _FIRST_PAUSE
        except (OSError, DatabaseError, ValueError) as exc:
            _warn(f"fair share: {exc}")
            self._schedule_sharing(self._next_pause())


def _warn(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
