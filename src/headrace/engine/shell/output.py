"""The output of tasks, written to the job's output eventlog (RFC 24) or to files.

The shell of each node reads the output of its own tasks. The lead shell (nodeid 0) writes the eventlog and the files
that nodes share; the other shells send their output to it. If the name of a file depends on the task or node, the file
is written on the node on which the task runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from headrace.formats.spec import stdio
from headrace.formats.spec.idset import Idset

from .templates import expand, tags

_DEFAULT_LIMIT = 1 << 30
_MAX_LIMIT = (1 << 31) - 1
# Milliseconds to wait for the reader of a full terminal. The output is closed after that, because no other job of the
# node is served meanwhile.
_TERMINAL_TIMEOUT = 200
_LOCAL_TAGS = ("task", "node")
STREAMS = ("stdout", "stderr")
# The prefixes of a shell's own messages in an output file, by log level.
_LEVELS = {0: "FATAL: ", 3: "ERROR: ", 4: " WARN: ", 6: "DEBUG: "}

Entry = list[Any]


class Lookup(Protocol):
    """The value of a template tag, for a task or for the job."""

    def __call__(self, tag: str, rank: int | None = None) -> str | None: ...


class OutputError(Exception):
    """An output file cannot be opened, or an option is invalid. The text names it."""


def parse_size(value: Any) -> int:
    """A byte count with an optional K, M or G suffix. Raises OutputError."""
    text = str(value).strip().upper().rstrip("B")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    try:
        size = int(float(text[:-1] if factor > 1 else text) * factor)
    except (ValueError, OverflowError):
        size = 0
    if not 0 < size <= _MAX_LIMIT:
        raise OutputError(f"invalid output.limit={value}: must be a size from 1 to {_MAX_LIMIT} bytes, such as 10M")
    return size


def is_fifo(path: str) -> bool:
    """True if `path` is a FIFO. Opening a FIFO blocks until it has a peer, and would block all jobs here."""
    return stat.S_ISFIFO(_mode_of(path))


def _mode_of(path: str) -> int:
    """The mode of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def _write_some(fd: int, data: memoryview) -> int:
    """Write `data`; if a terminal is full, wait up to _TERMINAL_TIMEOUT for its reader. Raises OSError."""
    try:
        return os.write(fd, data)
    except BlockingIOError:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.poll(_TERMINAL_TIMEOUT)
        return os.write(fd, data)


class Output:
    """The output of one job on one node.

    The lead shell calls `emit(entries)` with entries of the eventlog, other shells call `to_lead(message)`.
    `lost(why)` is called for each file that could not be written completely. `most` is the largest limit that the job
    may have (None: any).
    """

    def __init__(
        self,
        options: dict[str, Any],
        nodeid: int,
        ntasks: int,
        ranks: Sequence[int],
        lookup: Lookup,
        emit: Callable[[list[Entry]], None],
        to_lead: Callable[[dict[str, Any]], None],
        lost: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        self._nodeid = nodeid
        self._lead = nodeid == 0
        self._ranks = ranks
        self._lookup = lookup
        self._emit = emit
        self._to_lead = to_lead
        self._lost = lost
        self._specs = _stream_specs(options)
        limit = parse_size(options.get("limit", _DEFAULT_LIMIT))
        self._limit = limit if most is None else min(limit, most)
        self._append = options.get("mode") == "append"
        # Bytes of each stream for the eventlog, and the streams that have reached the limit.
        self._used = dict.fromkeys(STREAMS, 0)
        self._cut: set[str] = set()
        self._partial: dict[tuple[int, str], bytes] = {}
        self._files: dict[str, int] = {}
        self._shared: dict[str, str] = {}
        self._local: dict[tuple[str, int], str] = {}
        self._ntasks = ntasks

    def open(self) -> None:
        """Send the header and open the files. Raises OutputError."""
        now = time.time()
        entries: list[Entry] = []
        if self._lead:
            counts = {stream: self._ntasks for stream in STREAMS}
            # The eventlog begins with the header, and errors of files are logged in the eventlog.
            self._emit([[now, "header", stdio.header(counts)]])
        for stream in STREAMS:
            spec = self._specs[stream]
            path = spec.get("path")
            if spec.get("type") != "file" or not path:
                continue
            path = str(path)
            if any(tag.startswith(_LOCAL_TAGS) for tag in tags(path)):
                for rank in self._ranks:
                    name = expand(path, partial(self._lookup, rank=rank))
                    self._local[(stream, rank)] = name
                    self._open_file(name)
                if self._lead:
                    shown = expand(path, lambda tag: None if tag.startswith(_LOCAL_TAGS) else self._lookup(tag))
                    entries.append([now, "redirect", stdio.redirect(stream, _all_ranks(self._ntasks), shown)])
            else:
                name = expand(path, self._lookup)
                self._shared[stream] = name
                if self._lead:
                    self._open_file(name)
                    entries.append([now, "redirect", stdio.redirect(stream, _all_ranks(self._ntasks), name)])
        if entries:
            self._emit(entries)

    def _open_file(self, path: str) -> None:
        if path in self._files:
            return
        mode = _mode_of(path)
        if stat.S_ISFIFO(mode):
            why = "it is a FIFO, whose reader could block the other jobs of this node"
            raise OutputError(f"error opening output file '{path}': {why}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | (os.O_APPEND if self._append else os.O_TRUNC)
        if stat.S_ISCHR(mode):
            # A blocking write to a terminal would make all jobs of the node wait for its reader.
            flags |= os.O_NONBLOCK
        try:
            self._files[path] = os.open(path, flags, 0o666)
        except OSError as exc:
            raise OutputError(f"error opening output file '{path}': {exc.strerror}") from None

    def unbuffered(self, stream: str) -> bool:
        return bool(self._specs[stream].get("buffer") == "none")

    def data(self, rank: int, stream: str, data: bytes) -> None:
        """Handle output of a task. Unless the stream is unbuffered, an incomplete last line is kept back."""
        if not self.unbuffered(stream):
            key = (rank, stream)
            rest = self._partial.pop(key, b"")
            if rest:
                data = rest + data
            cut = data.rfind(b"\n") + 1
            if cut < len(data):
                # An incomplete line is kept back only up to 1 MiB.
                if len(data) - cut < 1 << 20:
                    self._partial[key] = data[cut:]
                else:
                    cut = len(data)
            data = data[:cut]
        if data:
            self._write(rank, stream, data)

    def eof(self, rank: int, stream: str) -> None:
        """Handle the end of `stream` of a task."""
        rest = self._partial.pop((rank, stream), b"")
        if rest:
            self._write(rank, stream, rest)
        if stream in self._shared or (stream, rank) in self._local:
            return
        self._log([time.time(), "data", {"stream": stream, "rank": str(rank), "eof": True}])

    def _write(self, rank: int, stream: str, data: bytes) -> None:
        path = self._local.get((stream, rank))
        if path is not None:
            self._put(path, self._labelled(rank, stream, data))
        elif stream in self._shared:
            data = self._labelled(rank, stream, data)
            if self._lead:
                self._put(self._shared[stream], data)
            else:
                self._to_lead({"kind": "file", "stream": stream, "data": data.decode("latin-1")})
        else:
            self._log([time.time(), "data", stdio.data(stream, str(rank), data)], len(data))

    def _labelled(self, rank: int, stream: str, data: bytes) -> bytes:
        if not self._specs[stream].get("label"):
            return data
        prefix = b"%d: " % rank
        # Only a newline ends a line, so a progress display with carriage returns gets only one label.
        return b"".join(prefix + line for line in io.BytesIO(data))

    def _put(self, path: str, data: bytes) -> None:
        fd = self._files.get(path)
        view = memoryview(data)
        while fd is not None and view:
            try:
                view = view[_write_some(fd, view) :]
            except OSError as exc:
                # The job continues, but the file is closed. If output were added after a gap, it would look complete.
                with contextlib.suppress(OSError):
                    os.close(fd)
                del self._files[path]
                self._report_lost(path, exc)
                return

    def _report_lost(self, path: str, exc: OSError) -> None:
        why = f"error writing {path}: {exc.strerror}: output is lost"
        self.log(3, why, self._nodeid)
        self._lost(why)

    def _log(self, entry: Entry, size: int = 0) -> None:
        if not self._lead:
            self._to_lead({"kind": "output", "entries": [entry]})
            return
        if size:
            stream = entry[2]["stream"]
            room = self._limit - self._used[stream]
            self._used[stream] += size
            if stream in self._cut:
                return
            if size > room:
                self._cut.add(stream)
                self._emit_start(entry, room)
                text = f"{stream} truncated: output limit of {self._limit} bytes reached, the rest is dropped"
                self._emit([[time.time(), "log", stdio.log(4, text, self._nodeid, "output")]])
                return
        self._emit([entry])

    def _emit_start(self, entry: Entry, size: int) -> None:
        """Emit the first `size` bytes of a data entry's content."""
        content = stdio.decode_data(entry[2]).data or b""
        if size:
            self._emit([[entry[0], "data", stdio.data(entry[2]["stream"], entry[2]["rank"], content[:size])]])

    def from_peer(self, message: dict[str, Any]) -> None:
        """In the lead shell: handle output of another shell."""
        if message["kind"] == "file":
            # The lead shell uses its own expansion of the file name, because {{tmpdir}} differs between nodes.
            self._put(self._shared[message["stream"]], message["data"].encode("latin-1"))
            return
        for entry in message["entries"]:
            context = entry[2]
            content = stdio.decode_data(context).data if entry[1] == "data" else None
            self._log(entry, len(content or b""))

    def log(self, level: int, message: str, rank: int, component: str | None = None) -> None:
        """Log a message of the shell: as a log event (RFC 24), and in the first stderr file of this node."""
        self._log([time.time(), "log", stdio.log(level, message, rank, component)])
        path = self._shared.get("stderr")
        own = next((name for (stream, _), name in self._local.items() if stream == "stderr"), None)
        if path is None and own is None:
            return
        origin = f"{component}: " if component else ""
        line = f"flux-shell[{rank}]: {_LEVELS.get(level, '')}{origin}{message}\n".encode()
        if own is not None:
            self._put(own, line)
        elif self._lead and path is not None:
            self._put(path, line)
        else:
            self._to_lead({"kind": "file", "stream": "stderr", "data": line.decode("latin-1")})

    def close(self) -> None:
        for stream in sorted(self._cut):
            used = self._used[stream]
            text = f"{stream}: {used - self._limit} of {used} bytes truncated"
            self._emit([[time.time(), "log", stdio.log(4, text, self._nodeid, "output")]])
        files, self._files = self._files, {}
        for path, fd in files.items():
            try:
                os.close(fd)
            except OSError as exc:
                # Some file systems report missing space only at close(2).
                self._report_lost(path, exc)


def _stream_specs(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each stream. By default, stderr is written to the file of stdout."""
    specs = {}
    for stream in STREAMS:
        given = options.get(stream)
        spec = dict(given) if isinstance(given, dict) else {}
        buffer = spec.get("buffer")
        if isinstance(buffer, dict):
            spec["buffer"] = buffer.get("type")
        elif stream == "stderr":
            spec.setdefault("buffer", "none")
        specs[stream] = spec
    if "type" not in specs["stderr"] and specs["stdout"].get("type") == "file":
        specs["stderr"].update(type="file", path=specs["stdout"].get("path"))
        specs["stderr"].setdefault("label", specs["stdout"].get("label"))
    return specs


def _all_ranks(ntasks: int) -> str:
    return Idset(range(ntasks)).encode(brackets=True)
