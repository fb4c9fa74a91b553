"""Follows a job to its end, for `flux run` and `flux job attach`.

Three eventlogs are watched at once: the job's own, the execution system's (RFC 50), which names the shell's service,
and the output (RFC 24). Standard input is sent to the shell's service. In whatever order the eventlogs end, the status
is the one in the `finish` event.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from io import BytesIO

from headrace.cli.common.errors import CommandError
from headrace.formats.spec import jobid
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import CANCEL, FATAL, is_fatal
from headrace.formats.spec.stdlib_parts import signal
from headrace.formats.spec.wait_status import exit_code, strsignal
from headrace.wire.client.reactor import Reactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from headrace.cli.job.attach_tail import Tail
    from headrace.cli.job.status_line import StatusLine
    from headrace.cli.job.terminal import TerminalLink
    from headrace.wire.client.handle import Handle, Rpc

_STDIN_CHUNK = 1 << 16
_STDIN_UNANSWERED = 16
# Seconds to wait, after a job refused standard input, for the events that tell whether it has ended.
_END_KNOWN_AFTER = 0.5
_LEVELS = {0: "FATAL: ", 1: "FATAL: ", 2: "FATAL: ", 3: "ERROR: ", 4: " WARN: ", 7: "TRACE: ", 6: "DEBUG: "}
_SECOND_INTERRUPT = 2.0
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
# Seconds by which the line about an exception is delayed, so that messages of the shell come first.
_HOLD = 0.1
# Seconds before a pending job gets a status line at a terminal.
_STATUS_AFTER = 2.0


class Attach:
    """One job that is being followed. `run()` returns the exit status for the caller of the job.

    `label` prefixes lines with their task rank. `show_events` and `show_exec` print the eventlogs on stderr.
    `stdin_ranks` is the set of tasks that get standard input; `read_only` sends neither input nor signals. The job's
    own eventlog is watched until `wait_event`; unless that is `finish`, the exit status does not depend on the job's
    tasks. A status line is shown until the job starts: at once with `show_status`, at a terminal after two seconds.
    With `tail`, only the last lines of earlier output are shown. The signals in `_FORWARDED` are sent to the job.
    """

    def __init__(
        self,
        handle: Handle,
        job: int,
        *,
        label: bool = False,
        show_events: bool = False,
        show_exec: bool = False,
        read_only: bool = False,
        quiet: bool = False,
        stdin_ranks: str = "all",
        wait_event: str = "finish",
        show_status: bool = False,
        tail: Optional[Tail] = None,
    ) -> None:
        self.handle = handle
        self.job = job
        self.name = jobid.encode(job, "f58")
        self.label = label
        self.show_events = show_events
        self.show_exec = show_exec
        self.read_only = read_only
        self.quiet = quiet
        self.stdin_ranks = stdin_ranks
        self.wait_event = wait_event
        self._tail = tail
        self.reactor = Reactor()
        self.submitted = 0.0
        self.allocated = False
        self.started = False
        self.fatal = False
        self.status: Optional[int] = None
        self.service = ""
        self.leader = 0
        self._open: Dict[str, Rpc] = {}
        self._held: List[Any] = []
        self._stdin_waiting = 0
        self._stdin_taken = False
        self._stdin_refused = False
        self._stdin_watched = False
        self._interrupted = 0.0
        self._detached_with_ctrl_z = False
        self._terminal: Optional[TerminalLink] = None
        # True if we are attached to the first task's terminal. While None, this is not known and output is kept.
        self._joined: Optional[bool] = False
        self._early: List[Dict[str, Any]] = []
        self._status_line: Optional[StatusLine] = None
        shown = show_status or (_at_terminal() and not show_events)
        if shown and not os.environ.get("FLUX_ATTACH_NONINTERACTIVE"):
            from headrace.cli.job.status_line import StatusLine as Line

            self._status_line = Line(
                self.handle, self.job, self.name, self.reactor, 0.0 if show_status else _STATUS_AFTER
            )

    def run(self) -> int:
        """Follow the job. Raises CommandError if it does not exist or does not accept standard input."""
        self.reactor.add_handle(self.handle)
        self._watch("eventlog")
        if not self.read_only:
            self.reactor.add_signal(signal.SIGINT, self._interrupt)
            self.reactor.add_signal(signal.SIGTSTP, self._suspend)
            # Signals that are ignored, such as SIGHUP under nohup(1), stay ignored.
            for signum in (one for one in _FORWARDED if signal.getsignal(one) != signal.SIG_IGN):
                self.reactor.add_signal(signum, self._forwarder(signum))
        try:
            self.reactor.run()
        finally:
            if self._terminal is not None:
                self._terminal.close()
            if self._status_line is not None:
                self._status_line.close()
        return self._conclude()

    def _watch(self, path: str) -> None:
        call = self.handle.stream("job-info.eventlog-watch", {"id": self.job, "path": path, "flags": 0})
        self._open[path] = call
        take = {"eventlog": self._job_event, "guest.exec.eventlog": self._exec_event, "guest.output": self._output}[
            path
        ]

        def answered(call: Rpc) -> None:
            try:
                entry = call.get()["event"]
            except OSError as exc:
                self._ended(path, exc)
                return
            take(decode_line(entry))
            if path == "guest.output" and not call.ready:
                sys.stdout.buffer.flush()

        call.then(answered)

    def _ended(self, path: str, exc: OSError) -> None:
        self._open.pop(path, None)
        if path == "guest.output":
            self._release_held()
        if path == "eventlog":
            if exc.errno != errno.ENODATA:
                raise CommandError(f"flux-job: {self.name}: {exc.strerror}", bare=True) from None
            if not self.started:
                self._open.clear()
        if not self._open:
            self.reactor.stop()

    # -- events

    def _job_event(self, event: Any) -> None:
        name, context = event.name, event.context or {}
        if name == "submit":
            self.submitted = event.timestamp
            self._watch("guest.exec.eventlog")
        elif name == "alloc":
            self.allocated = True
        elif name == "start":
            self.started = True
        elif name == "finish":
            self.status = int(context["status"])
        if is_fatal(name, context):
            self.fatal = True
        if self._status_line is not None and self._status_line.event(name):
            self._status_line = None
        if self.show_events:
            self._show("job", event)
        elif name == "exception":
            self._hold(event)
        if name == self.wait_event != "finish":
            call = self._open.pop("eventlog")
            call.cancel()
            call.then(_ignore_errors)
            if not self._open:
                self.reactor.stop()

    def _hold(self, event: Any) -> None:
        """Show an exception; while the job runs, after a delay.

        The shell's messages about the cause come through another eventlog, and are shown first if they come in time.
        """
        self._held.append(event)
        if self.allocated and len(self._open) > 1:
            self.reactor.add_timer(_HOLD, self._release_held)
        else:
            self._release_held()

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for event in held:
            context = event.context
            note = jobid.shown(context.get("note", ""))
            self._note(
                event.timestamp,
                f"job.exception {self.name} type={context['type']} severity={context['severity']}"
                + (f" {note}" if note else ""),
            )

    def _exec_event(self, event: Any) -> None:
        if event.name == "shell.init":
            # A requeued job has a second shell.init event, but a single output log, whose watch may have ended.
            if not self.service:
                self._watch("guest.output")
            self.service = event.context["service"]
            self.leader = event.context["leader-rank"]
            terminal = event.context.get("pty")
            if terminal and terminal != "capture" and self.read_only:
                raise CommandError("flux-job: Cannot connect to pty in readonly mode", bare=True)
            if terminal and terminal != "capture" and not self.read_only:
                self._join_terminal()
            elif not self.read_only:
                self._watch_stdin()
        elif event.name == "shell.start" and self.stdin_ranks != "all" and not self.read_only:
            self._close_other_inputs(event.context["taskmap"])
        if self.show_exec:
            self._show("exec", event)
        elif event.name == "log":
            self._log(event)

    def _close_other_inputs(self, taskmap: Any) -> None:
        """Send EOF to tasks that get no input from us; otherwise they would wait for input forever."""
        from headrace.formats.spec.idset import Idset
        from headrace.formats.spec.taskmap import TaskMap

        everyone = Idset(range(TaskMap.decode(taskmap).ntasks))
        wanted = Idset.parse(self.stdin_ranks)
        others = everyone - wanted
        if wanted - everyone:
            there = str(wanted & everyone)
            sys.stderr.write(f"flux-job: warning: adjusting --stdin-ranks from {self.stdin_ranks} to {there}\n")
            self.stdin_ranks = there
        if others:
            io = {"stream": "stdin", "rank": str(others), "eof": True}
            self.handle.rpc(f"{self.service}.stdin", io, self.leader).then(_ignore_errors)

    def _join_terminal(self) -> None:
        from headrace.cli.job.terminal import TerminalLink

        topic = f"{self.service}.pty"
        self._joined = None
        self.stdin_ranks = "0"
        self._terminal = TerminalLink(
            self.handle, self.reactor, topic, self.leader, self._terminal_settled, self._detach
        )

    def _terminal_settled(self, joined: bool) -> None:
        self._joined = joined
        early, self._early = self._early, []
        for context in early:
            self._data(context)
        sys.stdout.buffer.flush()

    def _show(self, source: str, event: Any) -> None:
        text = f"{source}.{event.name}"
        if event.context is not None:
            import json

            text += " " + json.dumps(event.context, separators=(",", ":"), ensure_ascii=False)
        self._note(event.timestamp, text)

    def _note(self, timestamp: float, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"{max(0.0, timestamp - self.submitted):.3f}s: {text}\n")
        sys.stderr.flush()

    # -- output

    def _output(self, event: Any) -> None:
        context = event.context
        if event.name == "data":
            self._data(context)
        elif event.name == "log":
            self._log(event)
        elif event.name == "redirect" and not self.quiet:
            sys.stderr.write(f"{context['rank']}: {context['stream']} redirected to {context['path']}\n")
        if self._tail is not None:
            for stream, line in self._tail.passed():
                self._write(stream, line)

    def _data(self, context: Dict[str, Any]) -> None:
        text = context.get("data")
        if not text:
            return
        if self._joined is not False and str(context["rank"]) == "0":
            # The output of an attached terminal comes from its service; with pty.capture the log has it, too.
            if self._joined is None:
                self._early.append(context)
            return
        if context.get("encoding") == "base64":
            from binascii import a2b_base64

            data = a2b_base64(text)
        else:
            data = text.encode("utf-8", "surrogateescape")
        data *= context.get("repeat", 1)
        if self.label:
            prefix = f"{context['rank']}: ".encode()
            # Only a newline ends a line, as in files.
            data = b"".join([prefix + line for line in BytesIO(data)])
        if self._tail is None or not self._tail.holds(context["stream"], data):
            self._write(context["stream"], data)

    def _write(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            sys.stdout.buffer.flush()
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        else:
            sys.stdout.buffer.write(data)

    def _log(self, event: Any) -> None:
        context = event.context
        component = context.get("component", "")
        origin = f"flux-shell[{context['rank']}]" if "rank" in context else "flux-shell"
        for line in jobid.shown(str(context.get("message", ""))).splitlines() or [""]:
            level = _LEVELS.get(context.get("level", 5), "")
            self._note(event.timestamp, f"{origin}: {level}{component + ': ' if component else ''}{line}")

    # -- input

    def _watch_stdin(self) -> None:
        if not self._stdin_watched and not self._stdin_refused:
            self._stdin_watched = True
            self.reactor.add_fd(0, self._stdin_ready)

    def _unwatch_stdin(self) -> None:
        if self._stdin_watched:
            self._stdin_watched = False
            self.reactor.remove_fd(0)

    def _stdin_ready(self, _revents: int) -> None:
        try:
            data = os.read(0, _STDIN_CHUNK)
        except OSError as exc:
            if exc.errno == errno.EAGAIN:
                return
            data = b""
        io: Dict[str, Any] = {"stream": "stdin", "rank": self.stdin_ranks}
        if data:
            try:
                io["data"] = data.decode("utf-8")
            except UnicodeDecodeError:
                from binascii import b2a_base64

                io["data"] = b2a_base64(data, newline=False).decode()
                io["encoding"] = "base64"
        else:
            io["eof"] = True
            self._unwatch_stdin()
        self._stdin_waiting += 1
        if self._stdin_waiting >= _STDIN_UNANSWERED:
            self._unwatch_stdin()
        self.handle.rpc(f"{self.service}.stdin", io, self.leader).then(self._stdin_answered(bool(data)))

    def _stdin_answered(self, had_data: bool) -> Any:
        def answered(call: Rpc) -> None:
            self._stdin_waiting -= 1
            try:
                call.get()
                self._stdin_taken = True
            except OSError as exc:
                if exc.errno == errno.EPIPE and had_data:
                    raise CommandError(f"flux-job: error writing stdin: {exc.strerror}", bare=True) from None
                self._unwatch_stdin()
                # If the job accepted earlier input, it has ended since then and did not need the rest.
                if exc.errno == errno.ENOSYS and had_data and not self._stdin_taken:
                    self._stdin_refusal(exc)
                return
            if had_data and self._stdin_waiting < _STDIN_UNANSWERED:
                self._watch_stdin()

        return answered

    def _stdin_refusal(self, exc: OSError) -> None:
        """Report soon that the job does not accept standard input, unless it has ended by then.

        If the whole service is gone, the job has certainly ended.
        """
        if not self._stdin_refused and not str(exc.strerror).startswith("No service matching"):
            self._stdin_refused = True
            self.reactor.add_timer(_END_KNOWN_AFTER, self._refuse_stdin)

    def _refuse_stdin(self) -> None:
        """Raise CommandError if the job still runs."""
        if self.status is None and "guest.exec.eventlog" in self._open:
            raise CommandError("flux-job: stdin not accepted by job", bare=True)

    # -- signals

    def _interrupt(self) -> None:
        now = time.monotonic()
        if self._interrupted and now - self._interrupted < _SECOND_INTERRUPT:
            request = {"id": self.job, "type": CANCEL, "severity": FATAL, "note": "interrupted by ctrl-C"}
            self.handle.rpc("job-manager.raise", request).then(_ignore_errors)
            return
        self._interrupted = now
        sys.stderr.write("flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach\n")

    def _suspend(self) -> None:
        if self._interrupted and time.monotonic() - self._interrupted < _SECOND_INTERRUPT:
            self._detach()
            self._detached_with_ctrl_z = True
            return
        os.kill(0, signal.SIGSTOP)

    def _forwarder(self, signum: int) -> Callable[[], None]:
        return lambda: self._forward(signum)

    def _forward(self, signum: int) -> None:
        """Send a signal to the job's tasks; if it has none, take the signal's default action on this process."""

        def answered(call: Rpc) -> None:
            try:
                call.get()
            except OSError:
                if self.status is None:
                    signal.signal(signum, signal.SIG_DFL)
                    os.kill(os.getpid(), signum)

        self.handle.rpc("job-manager.kill", {"id": self.job, "signum": signum}).then(answered)

    def _detach(self) -> None:
        sys.stderr.write("flux-job: detaching...\n")
        self._open.clear()
        self.reactor.stop()

    # -- the end

    def _conclude(self) -> int:
        if self._joined is None:
            self._terminal_settled(False)
        self._release_held()
        sys.stdout.flush()
        if self.status is None:
            return 1 if self.fatal or self._detached_with_ctrl_z else 0
        code = exit_code(self.status)
        if code and not self.quiet:
            sys.stderr.write(f"flux-job: {ending(self.status)}\n")
        return code


def _at_terminal() -> bool:
    """True if stdin, stdout and stderr are all terminals."""
    return all(os.isatty(fd) for fd in range(3))


def _ignore_errors(call: Rpc) -> None:
    try:
        call.get()
    except OSError:
        pass


def ending(status: int) -> str:
    """The text for a wait status that is not zero.

    The shell exits with 128 plus the signal that ended its task.
    """
    if os.WIFSIGNALED(status):
        return f"job shell {strsignal(os.WTERMSIG(status))}"
    code = os.WEXITSTATUS(status)
    if code > 128:
        return f"task(s) {strsignal(code - 128)}"
    return f"task(s) exited with exit code {code}"
