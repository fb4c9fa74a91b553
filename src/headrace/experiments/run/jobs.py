"""A run as a job of an instance: its jobspec, and following it to its end over the instance's connection."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from headrace.experiments.store.folder import EVENTLOG, STDERR, STDOUT, R
from headrace.experiments.values import PHASES, Cell, State
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import CANCEL, NODE_FAILURE, SCHEDULER_RESTART, TIMEOUT, is_fatal
from headrace.formats.spec.rset import ResourceSet
from headrace.formats.spec.stdio import StdioError, decode_data
from headrace.formats.spec.wait_status import exit_code
from headrace.wire.client.handle import Handle
from headrace.wire.query import submission

Jobspec = dict[str, Any]
# Parses options and a command as `flux submit` does. Raises ValueError.
Parse = Callable[[list[str]], Any]

# Exceptions of jobs for which the machine is the cause, and not the program.
_OF_MACHINE = frozenset((NODE_FAILURE, SCHEDULER_RESTART))
# As in make(1): a command without these characters that is no builtin of the shell is executed directly, any other by
# /bin/sh, with the same effect. The builtins are those of POSIX (2.14) and others that cannot be programs.
_OF_SHELL = frozenset("\n$`|&;<>()*?[]~#={}!%\\")
_SPECIAL = ". : break continue eval exec exit export readonly return set shift times trap unset"
_BUILTIN = "alias bg cd command fg getopts hash jobs read type ulimit umask unalias wait"
_BUILTINS = frozenset(f"{_SPECIAL} {_BUILTIN}".split())
_OF_CONNECTION = frozenset((errno.ECONNRESET, errno.EPIPE, errno.ECONNREFUSED, errno.ENOTCONN, errno.EBADF))


class Lost(Exception):
    """The machine failed, and the instance with it or not: the run may be tried again elsewhere."""


class Ended(Struct, kw_only=True):
    """How a job ended, whatever its exit code; `phases` are the times at which they began."""

    state: State = "completed"
    reason: str = ""
    exit: int | None = None
    phases: dict[str, float] = {}
    nodes: str = ""


def words(command: str) -> list[str]:
    """The command as an argument vector. Raises ValueError for an open quote."""
    if _OF_SHELL.isdisjoint(command):
        found = shlex.split(command)
        if found and found[0] not in _BUILTINS:
            return found
    return ["/bin/sh", "-c", command]


def jobspec(cell: Cell, environment: Mapping[str, str], parse: Parse, caller: submission.Caller) -> Jobspec:
    """The jobspec of a cell's runs, but for the working directory. Raises ValueError with a message for users."""
    job = cell.job
    line = ["-N", str(job.nodes or cell.size)]
    for flag, count in (("-n", job.tasks), ("-c", job.cores), ("-g", job.gpus)):
        if count:
            line += [flag, str(count)]
    # An option of the user overrides one of these.
    found = submission.task_jobspec(parse([*line, *job.options, "--", *words(job.command)]), caller)
    system = found["attributes"]["system"]
    system["environment"] = {**environment, **job.environment}
    system["job"] = {"name": cell.id, **system.get("job", {})}
    if job.timeout:
        jobspec_build.set_duration(found, job.timeout)
    return found


def in_folder(found: Jobspec, folder: str) -> bytes:
    """The request that submits a jobspec, to run in `folder`."""
    attributes = found["attributes"]
    system = {**attributes["system"], "cwd": folder}
    return submission.jobspec_request({**found, "attributes": {**attributes, "system": system}})


def follow(handle: Handle, request: bytes, record: Path) -> Ended:
    """Submit a job and follow it to its end; write its output, eventlog and R to the folder `record`.

    Raises Lost if the machine fails, and OSError if the folder cannot be written.
    """
    ended = Ended()
    try:
        id = handle.rpc("job-ingest.submit", payload=request).get()["id"]
        lines, exception = _events(handle, id, ended)
    except OSError as exc:
        if exc.errno in _OF_CONNECTION:
            raise _lost(exc) from None
        return Ended(state="failed", reason=f"the job was not accepted: {exc.strerror}")
    (record / EVENTLOG).write_text("".join(lines))
    _records(handle, id, ended, record)
    ended.phases = {name: ended.phases[name] for name in PHASES if name in ended.phases}
    if exception:
        kind, note = exception
        if kind in _OF_MACHINE:
            raise Lost(f"{kind}: {note}")
        ended.state = "timeout" if kind == TIMEOUT else "cancelled" if kind == CANCEL else "failed"
        ended.reason = f"time limit: {note}" if kind == TIMEOUT else f"{kind}: {note}"
    return ended


def _events(handle: Handle, id: int, ended: Ended) -> tuple[list[str], tuple[str, str] | None]:
    """The lines of a job's eventlog, and the type and text of its first fatal exception. Raises OSError."""
    names = {"submit": "created", "alloc": "scheduled", "start": "ready", "finish": "ended"}
    lines: list[str] = []
    exception: tuple[str, str] | None = None
    phases: dict[str, float] = {}
    for answer in handle.stream("job-info.eventlog-watch", {"id": id, "path": "eventlog", "flags": 0}):
        lines.append(answer["event"])
        event = decode_line(answer["event"])
        context = event.context or {}
        if event.name in names:
            phases[names[event.name]] = event.timestamp
        if event.name == "finish":
            ended.exit = exit_code(int(context["status"]))
        elif is_fatal(event.name, context) and exception is None:
            exception = str(context["type"]), str(context.get("note", ""))
            phases.setdefault("ended", event.timestamp)
    ended.phases = phases
    return lines, exception


def _lost(exc: OSError) -> Lost:
    return Lost(f"the instance was lost: {exc.strerror}")


def _records(handle: Handle, id: int, ended: Ended, record: Path) -> None:
    with open(record / STDOUT, "wb") as out, open(record / STDERR, "wb") as err:
        if "scheduled" in ended.phases:
            text = _lookup(handle, id, "R")
            (record / R).write_text(text)
            if text:
                ended.nodes = ResourceSet.parse(text).nodelist
        if "ready" in ended.phases:
            for line in _lookup(handle, id, "guest.exec.eventlog").splitlines():
                event = decode_line(line)
                # The job's own event "start" comes when all shells have started their tasks.
                name = {"shell.init": "ready", "shell.start": "program"}.get(event.name)
                if name:
                    ended.phases[name] = event.timestamp
            first = _output(handle, id, {"stdout": out, "stderr": err})
            if first:
                ended.phases["output"] = first


def _lookup(handle: Handle, id: int, key: str) -> str:
    """A job's value in the instance's store, "" if it has none."""
    try:
        return str(handle.rpc("job-info.lookup", {"id": id, "keys": [key], "flags": 0}).get()[key])
    except OSError as exc:
        if exc.errno in _OF_CONNECTION:
            raise _lost(exc) from None
        return ""


def _output(handle: Handle, id: int, files: dict[str, IO[bytes]]) -> float:
    """Write a job's output to files by stream; returns the time of its first data, 0 if there is none."""
    first = 0.0
    call = handle.stream("job-info.eventlog-watch", {"id": id, "path": "guest.output", "flags": 0})
    while True:
        try:
            event = decode_line(call.get()["event"])
        except OSError as exc:
            if exc.errno in _OF_CONNECTION:
                raise _lost(exc) from None
            return first
        if event.name == "log":
            files["stderr"].write(f"flux-shell: {(event.context or {}).get('message', '')}\n".encode())
        elif event.name == "data":
            try:
                data = decode_data(event.context)
            except StdioError:
                continue
            if data.data:
                first = first or event.timestamp
                files[data.stream].write(data.data)
