"""`flux job SUBCOMMAND`: the table of its subcommands; each group of them lives in a file of its own."""

from __future__ import annotations

import sys

from headrace.cli.errors import CommandError
from headrace.cli.getopts import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-job: "

# subcommand: (purpose, "" to keep it out of the help; module)
_TABLE = {
    "attach": ("Interactively attach to job", "job_attach"),
    "cancel": ("", "job_control"),
    "cancelall": ("", "job_bulk"),
    "eventlog": ("Display eventlog for a job", "job_eventlog"),
    "hostpids": ("Print host:PID of the tasks of a running job", "job_hostpids"),
    "id": ("Convert jobid(s) to another form", "job_id"),
    "info": ("Display info for a job", "job_eventlog"),
    "kill": ("Send signal to running job", "job_control"),
    "killall": ("Send signal to multiple running jobs", "job_bulk"),
    "last": ("List my most recently submitted job id", "job_id"),
    "list": ("", "job_listing"),
    "list-ids": ("", "job_listing"),
    "list-inactive": ("", "job_listing"),
    "memo": ("Post an RFC 21 memo to a job", "job_control"),
    "namespace": ("Convert job ids to job guest kvs namespace names.", "job_id"),
    "purge": ("Purge the oldest inactive jobs", "job_control"),
    "raise": ("Raise exception on one or more jobs", "job_control"),
    "raiseall": ("Raise an exception on multiple jobs", "job_bulk"),
    "stats": ("Get current job stats", "job_listing"),
    "status": ("Wait for job(s) to complete and exit with largest exit code", "job_status"),
    "submit": ("Run job(s)", "job_control"),
    "taskmap": ("Utility function for working with job task maps", "job_taskmap"),
    "timeleft": ("Find remaining runtime for job or enclosing instance", "job_status"),
    "urgency": ("Set job urgency (0-31, HOLD, EXPEDITE, or DEFAULT)", "job_control"),
    "wait": ("Wait for job(s) to complete.", "job_status"),
    "wait-event": ("Wait for an event", "job_eventlog"),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-job", argv, _TABLE)
    full = f"headrace.cli.{_TABLE[name][1]}"
    __import__(full)
    handler = getattr(sys.modules[full], "raise_" if name == "raise" else name.replace("-", "_"))
    status = handler(rest)
    return int(status)


def parse_id(text: str) -> int:
    """A job id in any form. Raises CommandError as these commands word it."""
    from headrace.spec import jobid

    try:
        return int(jobid.parse(text))
    except ValueError:
        raise CommandError(f'error parsing jobid: "{text}"') from None
