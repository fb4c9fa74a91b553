"""`flux job SUBCOMMAND`: the table of subcommands; each group of them has its own file."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-job: "

# subcommand: (purpose, "" to keep it out of the help; module)
_TABLE = {
    "attach": ("Follow a job: its output, your input, its exit status", "attach_command"),
    "cancel": ("", "control"),
    "cancelall": ("", "bulk"),
    "eventlog": ("Print the events of a job", "eventlog"),
    "hostpids": ("Print the tasks of a running job as host:PID", "hostpids"),
    "id": ("Print job ids in another form", "id"),
    "info": ("Print stored data of a job: jobspec, R, an eventlog ...", "eventlog"),
    "kill": ("Send a signal to the tasks of jobs", "control"),
    "killall": ("Send a signal to every running job of a user", "bulk"),
    "last": ("Print the ids of the jobs you submitted last", "id"),
    "list": ("", "listing"),
    "list-ids": ("", "listing"),
    "list-inactive": ("", "listing"),
    "memo": ("Attach notes to a job, which job listings can show (RFC 21 memo)", "control"),
    "namespace": ("Print the KVS namespace of each job", "id"),
    "purge": ("Delete jobs that have ended, oldest first or by id", "control"),
    "raise": ("Raise an exception on these jobs; severity 0 ends them", "control"),
    "raiseall": ("Raise an exception on every job of a user; severity 0 ends them", "bulk"),
    "stats": ("Print how many jobs are in each state, as JSON", "listing"),
    "status": ("Wait until jobs have ended; exit with the largest of their exit codes", "status"),
    "submit": ("Submit jobs from a jobspec file or standard input", "control"),
    "taskmap": ("Show which tasks of a job run on which node (RFC 34)", "taskmap"),
    "timeleft": ("Print how much time a job, or this instance, has left", "status"),
    "urgency": ("Move a job up or down its queue: 0-31, HOLD, EXPEDITE or DEFAULT", "control"),
    "wait": ("Wait for a waitable job, or all of them, to end", "status"),
    "wait-event": ("Wait until a job has had an event", "eventlog"),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-job", argv, _TABLE)
    full = f"headrace.cli.job.{_TABLE[name][1]}"
    __import__(full)
    handler = getattr(sys.modules[full], "raise_" if name == "raise" else name.replace("-", "_"))
    status = handler(rest)
    return int(status)


def parse_id(text: str) -> int:
    """Parse a job id in any form. Raises CommandError with the text that Flux's `flux job` has."""
    from headrace.formats.spec import jobid

    try:
        return int(jobid.parse(text))
    except ValueError:
        raise CommandError(f'error parsing jobid: "{text}"') from None
