"""`flux job hostpids`: the processes of a running job, for tools that attach to them."""

from __future__ import annotations

import errno

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec import duration
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

_RUNNING = 16

_COMMAND = Command(
    "flux-job hostpids",
    "[OPTIONS] JOBID",
    "Print the tasks of a running job as host:PID",
    (
        ("d", "delimiter", "STRING", "Separator of the tasks (default: comma)"),
        ("r", "ranks", "IDSET", "Print only the tasks with these ranks"),
        ("t", "timeout", "DURATION", "Give up after this time (default: 15s)"),
    ),
)


def hostpids(argv: List[str]) -> int:
    from headrace.cli.job.main import parse_id

    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    job = parse_id(text)
    try:
        timeout = duration.parse(options.get("timeout", "15s"))
        ranks = Idset.parse(options.get("ranks")) if options.has("ranks") else None
    except (duration.DurationError, IdsetError) as exc:
        raise CommandError(str(exc)) from None
    handle = Handle()
    # After the start event, all shells of the job know their tasks.
    event_of(handle, job, text, "eventlog", "start")
    shell = event_of(handle, job, text, "guest.exec.eventlog", "shell.init")
    call = handle.rpc(f"{shell['service']}.proctable", {}, shell["leader-rank"])
    try:
        tasks: Any = call.get(None if timeout == float("inf") else timeout)["tasks"]
    except OSError as exc:
        if exc.errno == errno.ETIMEDOUT:
            raise CommandError(f"{text}: no answer from the job's shells within {duration.encode(timeout)}") from None
        raise CommandError(f"{text}: {exc.strerror}") from None
    wanted = [f"{host}:{pid}" for rank, host, pid in tasks if ranks is None or rank in ranks]
    print(options.get("delimiter", ",").join(wanted))
    return 0


def event_of(handle: Handle, job: int, text: str, log: str, name: str) -> Any:
    """The context of an event of a running job.

    Raises CommandError if the job does not run or has no such event.
    """
    call = handle.stream("job-info.eventlog-watch", {"id": job, "path": log, "flags": 0})
    try:
        # The watch sends existing events first and then waits for more. Only a running job may be waited for.
        if not handle.rpc("job-list.list-id", {"id": job, "attrs": ["state"]}).get()["job"]["state"] & _RUNNING:
            raise CommandError(f"{text}: job is not running")
        for answer in call:
            event: Any = decode_line(answer["event"])
            if event.name == name:
                call.cancel()
                return event.context
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise CommandError(f"{text}: No such job") from None
    raise CommandError(f"{text}: job is not running")
