"""`flux exec`: runs a command on brokers through their subprocess servers (RFC 42)."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.wait_status import exit_code, how_ended
from headrace.wire.client.handle import Handle
from headrace.wire.client.reactor import Reactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from headrace.cli.common.getopts import Options
    from headrace.wire.client.handle import Rpc

PREFIX = "flux-exec: "

_COMMAND = Command(
    "flux-exec",
    "[OPTIONS] COMMAND...",
    "Run a command on all ranks, or some, of the instance",
    (
        ("r", "rank", "IDSET", "Run on these ranks (with --jobid: indexes of its nodes); default: all"),
        ("x", "exclude", "IDSET", "Leave out these ranks (with --jobid: indexes of its nodes)"),
        ("j", "jobid", "JOBID", "Run on the nodes of a job, numbered from 0"),
        ("d", "dir", "PATH", 'Run in this directory; "none": in the broker\'s'),
        ("l", "label-io", "", "Begin each line of output with its rank"),
        ("n", "noinput", "", "Give the processes an empty standard input"),
        ("v", "verbose", "", "Report when processes start and end"),
        ("q", "quiet", "", "Print no messages about failed processes"),
        ("", "service", "NAME", "Use this service to run the processes (default: rexec)"),
        ("", "bg", "", "Return as soon as the processes run"),
        ("", "waitable", "", "With --bg, keep the exit status of the processes until a client waits for it"),
        ("", "label", "NAME", "Label the processes"),
        ("", "setopt", "NAME=VALUE", "Set an option of the service's processes (repeatable)"),
    ),
)
_STDOUT, _STDERR, _WRITE_CREDIT, _WAITABLE = 1, 2, 8, 16
_CHUNK = 1 << 16
# The state of a job whose tasks run (RFC 21).
_RUN = 16
# Bytes of an incomplete line that are kept; a longer one is written in parts.
_LONGEST = 4 << 20
# Two interrupts within this many seconds end this command without waiting for the processes.
_TWICE = 2.0
# Seconds before a user at a terminal is told which ranks have not responded.
_PATIENCE = 2.0
_STATUS_OF_ERROR = {errno.ENOENT: 127, errno.EACCES: 126, errno.EPERM: 126, errno.EHOSTUNREACH: 68}


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv, stop_early=True)
    command = options.need(1)
    if options.has("waitable") and not options.has("bg"):
        raise CommandError("--waitable needs --bg")
    handle = Handle()
    settings = dict(_setting(text) for text in options.get_list("setopt"))
    if options.has("jobid"):
        targets, service = _job(handle, options.get("jobid"))
    else:
        targets, service = list(range(int(handle.attr_get("size")))), "rexec"
    ranks = _ranks(targets, options)
    service = options.get("service", service)
    request = _request(command, options, settings)
    if options.has("bg"):
        return _background(handle, ranks, service, request)
    return _Exec(handle, ranks, service, request, options).run()


def _ranks(targets: List[int], options: Options) -> List[int]:
    """The targets selected by --rank and --exclude. Raises CommandError for a rank that does not exist."""
    text = options.get("rank", "all")
    everything = Idset(range(len(targets)))
    try:
        wanted = everything if text == "all" else Idset.parse(text)
        excluded = Idset.parse(options.get("exclude")) if options.has("exclude") else Idset([])
    except ValueError as exc:
        raise CommandError(f"error parsing --rank/--exclude option: {exc}") from None
    wrong = wanted - everything
    if wrong:
        raise CommandError(f"One or more invalid --ranks specified: {wrong}")
    chosen = wanted - excluded
    if not chosen:
        raise CommandError("No targets specified")
    return [targets[index] for index in chosen]


def _job(handle: Handle, text: str) -> Tuple[List[int], str]:
    """The ranks of the brokers on a job's nodes, and the subprocess service of its shells.

    Raises CommandError for a job that is unknown or does not run.
    """
    from headrace.cli.job.hostpids import event_of
    from headrace.cli.job.main import parse_id

    id_ = parse_id(text)
    try:
        job = handle.rpc("job-list.list-id", {"id": id_, "attrs": ["ranks", "state"]}).get()["job"]
    except FileNotFoundError:
        raise CommandError(f"job {text} not found") from None
    if job["state"] != _RUN:
        raise CommandError(f"job {text} is not running")
    shell = event_of(handle, id_, f"job {text}", "guest.exec.eventlog", "shell.init")
    return list(Idset.parse(job.get("ranks", ""))), f"{shell['service']}.rexec"


def _request(command: List[str], options: Options, settings: Dict[str, str]) -> Dict[str, Any]:
    cmd: Dict[str, Any] = {
        "cmdline": command,
        "env": dict(os.environ),
        "opts": settings,
        "channels": [],
        "msgchan": [],
    }
    if options.get("dir") != "none":
        cmd["cwd"] = options.get("dir") or os.getcwd()
    if options.has("label"):
        cmd["label"] = options.get("label")
    flags = _STDOUT | _STDERR | _WRITE_CREDIT
    if options.has("bg"):
        flags = _WAITABLE if options.has("waitable") else 0
    return {"cmd": cmd, "flags": flags, "local_flags": 0}


def _setting(text: str) -> Tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CommandError(f"--setopt: '{text}' must be NAME=VALUE")
    return name, value


def _background(handle: Handle, ranks: List[int], service: str, request: Dict[str, Any]) -> int:
    calls = [(rank, handle.rpc(f"{service}.exec", request, rank)) for rank in ranks]
    status = 0
    for rank, call in calls:
        try:
            print(f"{rank}: {call.get()['pid']}")
        except OSError as exc:
            status = 1
            sys.stderr.write(f"flux-exec: rank {rank}: {exc.strerror}\n")
    return status


class _Exec:
    """The processes of one command line, one per rank, until the last one has ended."""

    def __init__(
        self, handle: Handle, ranks: List[int], service: str, request: Dict[str, Any], options: Options
    ) -> None:
        self.handle = handle
        self.ranks = ranks
        self.service = service
        self.label = options.has("label-io")
        self.quiet = options.has("quiet")
        self.verbose = options.has("verbose")
        self.no_input = options.has("noinput")
        self.request = request
        self.reactor = Reactor()
        self.calls: Dict[int, Rpc] = {}
        self.pids: Dict[int, int] = {}
        self.credit: Dict[int, int] = {}
        self.ended: Dict[int, List[int]] = {}
        self.status = 0
        self._reading: Optional[bool] = None
        self._interrupted = float("-inf")
        self._leaves = False
        # The last signal that was forwarded.
        self._signal = 0
        # With several processes, output is written in complete lines. The output of one is written at once.
        self._by_line = self.label or len(ranks) > 1
        # Incomplete lines by rank and stream, and the streams whose current line was too long and is partly written.
        self._lines: Dict[Tuple[int, str], bytes] = {}
        self._begun: Set[Tuple[int, str]] = set()

    def run(self) -> int:
        for rank in self.ranks:
            call = self.handle.stream(f"{self.service}.exec", self.request, rank)
            self.calls[rank] = call
            self.credit[rank] = -1
            call.then(self._answered(rank))
        self.reactor.add_handle(self.handle)
        for signum in (signal.SIGINT, signal.SIGTERM):
            self.reactor.add_signal(signum, self._forward(signum))
        if not self.quiet and sys.stderr.isatty():
            self.reactor.add_timer(_PATIENCE, self._tell_silent)
        self.reactor.run()
        sys.stdout.flush()
        self._tell_ends()
        return self.status

    def _answered(self, rank: int) -> Any:
        def answered(call: Rpc) -> None:
            try:
                answer = call.get()
            except OSError as exc:
                self._write_rest(rank)
                if exc.errno != errno.ENODATA:
                    self._failed(rank, exc)
                del self.calls[rank]
                self.credit.pop(rank, None)
                if not self.calls:
                    self.reactor.stop()
                elif self._signal:
                    self._leave_silent()
                else:
                    self._watch_input()
            else:
                # Outside of `try`: an OSError here is about this command's own output.
                self._take(rank, answer)

        return answered

    def _take(self, rank: int, answer: Dict[str, Any]) -> None:
        kind = answer["type"]
        if kind == "output":
            self._output(rank, answer["io"])
        elif kind == "started":
            self.pids[rank] = answer["pid"]
            self._report(rank, f"started process {answer['pid']}")
            if self._signal:
                self._kill(rank)
        elif kind == "add-credit":
            self.credit[rank] = max(self.credit[rank], 0) + answer["channels"].get("stdin", 0)
            self._watch_input()
        elif kind == "finished":
            status = answer["status"]
            self.status = max(self.status, exit_code(status))
            self._report(rank, f"ended: {how_ended(status)}")
            if status:
                self.ended.setdefault(status, []).append(rank)

    def _tell_silent(self) -> None:
        silent = Idset(self.calls.keys() - self.pids.keys())
        if silent:
            sys.stderr.write(f"flux-exec: waiting for rank {silent} (`flux overlay status` shows which are online)\n")

    def _failed(self, rank: int, exc: OSError) -> None:
        self.status = max(self.status, _STATUS_OF_ERROR.get(exc.errno or 0, 1))
        text = str(exc.strerror)
        if exc.errno in (errno.ENOENT, errno.EACCES) and "error launching" not in text:
            text = f"error launching process: {os.strerror(exc.errno)}"
        sys.stderr.write(f"flux-exec: Error: rank {rank}: {self.request['cmd']['cmdline'][0]}: {text}\n")

    def _output(self, rank: int, io: Dict[str, Any]) -> None:
        text = io.get("data") or ""
        if io.get("encoding") == "base64":
            from binascii import a2b_base64

            data = a2b_base64(text)
        else:
            data = text.encode("utf-8", "surrogateescape")
        if self._by_line:
            data = self._lines_of(rank, io["stream"], data, bool(io.get("eof")))
        if not data:
            return
        stream = sys.stderr if io["stream"] == "stderr" else sys.stdout
        stream.buffer.write(data)
        stream.buffer.flush()

    def _lines_of(self, rank: int, stream: str, data: bytes, ended: bool) -> bytes:
        """Add data to a stream and return its complete lines, with labels if wanted.

        At the end of the stream, or if it is too long, the incomplete line is returned, too.
        """
        complete, newline, rest = (self._lines.pop((rank, stream), b"") + data).rpartition(b"\n")
        if rest and not ended and len(rest) < _LONGEST:
            self._lines[rank, stream] = rest
            rest = b""
        text = complete + newline + rest
        if not self.label or not text:
            return text
        label = f"{rank}: ".encode()
        first = b"" if (rank, stream) in self._begun else label
        self._begun.discard((rank, stream))
        if rest:
            self._begun.add((rank, stream))
        return first + text[:-1].replace(b"\n", b"\n" + label) + text[-1:]

    def _write_rest(self, rank: int) -> None:
        """Write incomplete lines of a rank whose streams ended without EOF, such as of a lost broker."""
        for stream in ("stdout", "stderr"):
            if (rank, stream) in self._lines:
                self._output(rank, {"stream": stream, "eof": True})

    # -- input: read no more than the process with the least credit accepts

    def _room(self) -> int:
        return min(self.credit.values()) if self.credit else -1

    def _watch_input(self) -> None:
        if self._reading is None and self._room() >= 0:
            self._reading = False
            if self.no_input:
                self._write({"eof": True})
                return
        if self._reading is False and not self.no_input and self._room() > 0:
            self._reading = True
            self.reactor.add_fd(0, self._input_ready)

    def _input_ready(self, _revents: int) -> None:
        try:
            data = os.read(0, min(_CHUNK, self._room()))
        except OSError:
            data = b""
        if not data:
            self.reactor.remove_fd(0)
            self.no_input = True
            self._write({"eof": True})
            return
        try:
            self._write({"data": data.decode("utf-8")})
        except UnicodeDecodeError:
            from binascii import b2a_base64

            self._write({"data": b2a_base64(data, newline=False).decode(), "encoding": "base64"})
        for rank in self.credit:
            self.credit[rank] -= len(data)
        if self._room() <= 0:
            self._reading = False
            self.reactor.remove_fd(0)

    def _write(self, entry: Dict[str, Any]) -> None:
        for rank, call in self.calls.items():
            io = {"stream": "stdin", "rank": "0", **entry}
            self.handle.rpc_noreply(f"{self.service}.write", {"matchtag": call.matchtag, "io": io}, rank)

    # -- the end

    def _forward(self, signum: int) -> Any:
        def forward() -> None:
            if signum == signal.SIGINT:
                now = time.monotonic()
                if now - self._interrupted < _TWICE:
                    # The processes ignored the first one. Their brokers kill them when this command disconnects.
                    self.status = 128 + signum
                    self.reactor.stop()
                    return
                self._interrupted = now
            self._signal = signum
            for rank in self.calls.keys() & self.pids.keys():
                self._kill(rank)
            self._leave_silent()

        return forward

    def _kill(self, rank: int) -> None:
        body = {"pid": self.pids[rank], "signum": self._signal}
        self.handle.rpc_noreply(f"{self.service}.kill", body, rank)

    def _leave_silent(self) -> None:
        """After a signal, end if only ranks are left that have not responded, which have no process to signal.

        If such a rank starts its process later, its broker kills it.
        """
        if self._leaves or self.calls.keys() & self.pids.keys():
            return
        # timeout(1) signals its child and the process group, so a second signal may come before the reactor stops.
        self._leaves = True
        if not self.quiet:
            sys.stderr.write(f"flux-exec: rank {Idset(self.calls)} has not answered\n")
        self.status = max(self.status, 128 + self._signal)
        self.reactor.stop()

    def _tell_ends(self) -> None:
        """Report ranks with a non-zero status, unless --quiet is set."""
        if self.quiet:
            return
        for status, ranks in sorted(self.ended.items()):
            sys.stderr.write(f"{Idset(ranks).encode(brackets=True)}: {how_ended(status)}\n")

    def _report(self, rank: int, what: str) -> None:
        if self.verbose:
            sys.stderr.write(f"flux-exec: rank {rank}: {what}\n")
