"""`FluxExecutor`: concurrent.futures for Flux jobs. One thread owns the handle and sets the futures."""

from __future__ import annotations

import collections
import concurrent.futures
import errno
import logging
import os
import threading
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from flux.job.event import EventLogEvent, JobException
from flux.job.JobID import JobID, to_id
from headrace.formats.spec.job_exception import is_fatal
from headrace.formats.spec.wait_status import returncode
from headrace.wire.client.handle import Handle
from headrace.wire.client.reactor import Reactor

EVENTS = frozenset(
    """
    submit validate depend priority alloc start finish release free clean exception prolog-start prolog-finish
    epilog-start epilog-finish urgency flux-restart memo dependency-add dependency-remove jobspec-update
    resource-update set-flags debug
    """.split()  # noqa: SIM905
)

_log = logging.getLogger(__name__)


def _call(callback: Callable[..., Any], *args: Any) -> None:
    """Call a callback. As in concurrent.futures, an exception is logged and has no other effect."""
    try:
        callback(*args)
    except Exception:
        _log.exception("exception calling callback for %r", args[0])


class FluxExecutorFuture(concurrent.futures.Future):  # type: ignore[type-arg]
    """The future of one job: its result is the exit status, or -signal.

    After a fatal exception, it raises JobException. A shell exits with 128 plus the number of the signal that ended a
    task.
    """

    EVENTS = EVENTS

    def __init__(self) -> None:
        super().__init__()
        self._jobid: Any = None
        self._submitted = True
        self._known = threading.Event()
        # The thread that is running the callbacks for the job id.
        self._callback_thread = 0
        self._lock = threading.RLock()
        self._events: List[EventLogEvent] = []
        self._id_callbacks: List[Callable[[Any], Any]] = []
        self._event_callbacks: Dict[str, List[Callable[[Any, Any], Any]]] = {}
        self._status: Any = None
        self._failure: Optional[JobException] = None

    def jobid(self, timeout: Optional[float] = None) -> Any:
        """The job's id, once it is known; for an attached job, the argument of `attach`.

        Raises TimeoutError, CancelledError, or RuntimeError for a job that was refused.
        """
        if self._callback_thread != threading.get_ident() and not self._known.wait(timeout):
            raise concurrent.futures.TimeoutError()
        if not self._submitted:
            if self.cancelled():
                raise concurrent.futures.CancelledError()
            raise RuntimeError("job could not be submitted") from self.exception()
        return self._jobid

    def add_done_callback(self, fn: Callable[[Any], Any]) -> FluxExecutorFuture:  # type: ignore[override]
        super().add_done_callback(fn)
        return self

    def add_jobid_callback(self, callback: Callable[[Any], Any]) -> FluxExecutorFuture:
        """Register `callback(future)`, called when the id is known or submission failed; returns self."""
        with self._lock:
            if not self._known.is_set():
                self._id_callbacks.append(callback)
                return self
        _call(callback, self)
        return self

    def add_event_callback(self, event: str, callback: Callable[[Any, Any], Any]) -> FluxExecutorFuture:
        """Register `callback(future, event)`, called for every such event, past and future; returns self."""
        if event not in EVENTS:
            raise ValueError(f"{event} is not a valid event")
        with self._lock:
            self._event_callbacks.setdefault(event, []).append(callback)
            past = [old for old in self._events if old.name == event]
        for old in past:
            _call(callback, self, old)
        return self

    def cancel(self, *args: Any, **kwargs: Any) -> bool:
        """Cancel a job that has not been submitted yet; use flux.job.cancel for others."""
        cancelled = super().cancel()
        if cancelled:
            self._set_jobid(None, False)
        return cancelled

    def _set_jobid(self, jobid: Any, submitted: bool = True) -> None:
        """Set the id of the job, or None without a job; has no effect if it was set before."""
        with self._lock:
            if self._known.is_set():
                return
            self._jobid = jobid
            self._submitted = submitted
            callbacks, self._id_callbacks = self._id_callbacks, []
            self._callback_thread = threading.get_ident()
        # The callbacks run before waiting threads continue, as in the C bindings.
        for callback in callbacks:
            _call(callback, self)
        self._known.set()

    def _reject(self, exc: BaseException) -> None:
        self.set_exception(exc)
        self._set_jobid(None, False)

    def _add_event(self, event: EventLogEvent) -> None:
        with self._lock:
            self._events.append(event)
            callbacks = list(self._event_callbacks.get(event.name, ()))
        if event.name == "finish":
            self._status = event.context["status"]
        elif is_fatal(event.name, event.context) and self._failure is None:
            self._failure = JobException(event)
        for callback in callbacks:
            _call(callback, self, event)

    def _finish(self) -> None:
        if self.done():
            return
        if self._failure is not None:
            self.set_exception(self._failure)
        elif self._status is None:
            self.set_exception(RuntimeError("the job ended without a status"))
        else:
            self.set_result(returncode(self._status))


class _SubmitPackage(NamedTuple):
    """A job to submit, with the arguments of flux.job.submit."""

    submit_args: Tuple[Any, ...]
    submit_kwargs: Dict[str, Any]
    future: FluxExecutorFuture


class _AttachPackage:
    """A job that was submitted elsewhere; the future gets its id immediately."""

    __slots__ = ("future", "jobid")

    def __init__(self, jobid: Any, fut: FluxExecutorFuture) -> None:
        self.jobid = jobid
        self.future = fut
        fut._set_jobid(jobid)


class _FluxExecutorThread(threading.Thread):
    """The only thread that uses the executor's handle. Other threads call `add` and `close`."""

    def __init__(self, name: str, handle_args: Tuple[Any, ...], handle_kwargs: Dict[str, Any]) -> None:
        super().__init__(name=name, daemon=True)
        self._address = (handle_args, handle_kwargs)
        self._todo: Deque[Any] = collections.deque()
        self._wake_read, self._wake_write = os.pipe()
        self._open = 0
        self._closing = False
        self._lock = threading.Lock()

    def add(self, package: Any) -> None:
        """Queue a package. Raises RuntimeError after `close`."""
        with self._lock:
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._todo.append(package)
        os.write(self._wake_write, b"x")

    def close(self, cancel_futures: bool) -> None:
        """End the thread when its jobs have ended; with `cancel_futures`, cancel jobs not submitted yet."""
        with self._lock:
            self._closing = True
            if cancel_futures:
                for package in self._todo:
                    package.future.cancel()
        os.write(self._wake_write, b"x")

    def run(self) -> None:
        from flux.core.handle import Flux

        try:
            self._flux = Flux(*self._address[0], **self._address[1])
        except OSError as exc:
            self._reject_all(exc)
            return
        self._handle: Handle = self._flux.handle
        self._reactor: Reactor = self._flux.reactor
        self._reactor.add_fd(self._wake_read, self._woken)
        self._woken(0, read=False)
        self._reactor.run()
        self._flux.close()

    def _reject_all(self, exc: OSError) -> None:
        with self._lock:
            self._closing = True
            todo, self._todo = list(self._todo), collections.deque()
        for package in todo:
            package.future._reject(exc)

    def _woken(self, _events: int, read: bool = True) -> None:
        if read:
            os.read(self._wake_read, 4096)
        while True:
            with self._lock:
                if not self._todo:
                    break
                package = self._todo.popleft()
            if package.future.set_running_or_notify_cancel():
                self._open += 1
                (self._attach if isinstance(package, _AttachPackage) else self._submit)(package)
        self._maybe_stop()

    def _attach(self, package: _AttachPackage) -> None:
        try:
            number = to_id(package.jobid)
            if not 0 <= number < 1 << 64:
                raise OverflowError(f"{number} is not the number of a job")
        except (TypeError, ValueError, OverflowError) as exc:
            self._fail(package.future, exc)
        else:
            self._watch(package.future, number)

    def _submit(self, package: _SubmitPackage) -> None:
        from flux.job.submit import submit_async

        future = package.future
        try:
            submission = submit_async(self._flux, *package.submit_args, **package.submit_kwargs)
        except Exception as exc:
            self._fail(future, exc)
            return

        def submitted(call: Any) -> None:
            try:
                number = call.get()["id"]
            except OSError as exc:
                self._fail(future, exc)
                return
            future._set_jobid(JobID(number))
            self._watch(future, number)

        submission._call.then(submitted)

    def _watch(self, future: FluxExecutorFuture, number: int) -> None:
        body = {"id": number, "path": "eventlog", "flags": 0}

        def answered(call: Any) -> None:
            try:
                future._add_event(EventLogEvent(call.get()["event"]))
            except OSError as exc:
                if exc.errno == errno.ENOENT:
                    future.set_exception(ValueError(f"{number} does not match any job ID"))
                future._finish()
                self._open -= 1
                self._maybe_stop()

        self._handle.stream("job-info.eventlog-watch", body).then(answered)

    def _fail(self, future: FluxExecutorFuture, exc: BaseException) -> None:
        future._reject(exc)
        self._open -= 1

    def _maybe_stop(self) -> None:
        with self._lock:
            done = self._closing and not self._todo and not self._open
        if done:
            self._reactor.stop()


class FluxExecutor(concurrent.futures.Executor):
    """Submits job specifications; as a context manager, it waits for its jobs."""

    EVENTS = EVENTS

    def __init__(
        self,
        threads: int = 1,
        thread_name_prefix: str = "",
        poll_interval: float = 0.1,
        handle_args: Tuple[Any, ...] = (),
        handle_kwargs: Optional[Dict[str, Any]] = None,
    ) -> None:
        if threads < 1:
            raise ValueError("the number of threads must be at least 1")
        self._thread = _FluxExecutorThread(thread_name_prefix or "FluxExecutor", handle_args, handle_kwargs or {})
        self._thread.start()

    def submit(self, *args: Any, **kwargs: Any) -> FluxExecutorFuture:
        """Submit a job, with the arguments of flux.job.submit after the handle."""
        future = FluxExecutorFuture()
        self._thread.add(_SubmitPackage(args, kwargs, future))
        return future

    def attach(self, jobid: Any) -> FluxExecutorFuture:
        """A future for a job that was submitted elsewhere; ValueError is set if there is no such job."""
        future = FluxExecutorFuture()
        self._thread.add(_AttachPackage(jobid, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._thread.close(cancel_futures)
        if wait:
            self._thread.join()
