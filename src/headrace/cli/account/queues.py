"""Arguments of the commands about queues."""

from __future__ import annotations

from headrace.cli.account.arguments import FIELDS, FORMAT, JSON, PARSABLE, UNLIMITED, argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    from headrace.cli.account.arguments import Argument, Table

_QUEUE = argument("queue", metavar="QUEUE", help="The queue")
# Options: names, default of a new queue, help.
_LIMITS: Tuple[Tuple[Tuple[str, ...], int, str], ...] = (
    (("--min-nodes-per-job",), 1, "Fewest nodes of a job"),
    (("-N", "--max-nodes-per-job"), 1, "Most nodes of a job"),
    (("-t", "--max-time-per-job"), 60, "Longest time of a job, in minutes"),
    (("-P", "--priority"), 0, "Priority of the queue's jobs"),
    (("--max-running-jobs",), 100, "Most running jobs of a user in a bank"),
    (("--max-nodes-per-assoc",), UNLIMITED, "Most nodes of the running jobs of a user in a bank"),
    (("--max-sched-jobs",), UNLIMITED, "Most jobs of a user in a bank that wait for resources (state SCHED)"),
    (
        ("-msn", "--max-sched-nodes-per-assoc"),
        UNLIMITED,
        "Most nodes of the jobs of a user in a bank that wait for resources",
    ),
    (
        ("-msc", "--max-sched-cores-per-assoc"),
        UNLIMITED,
        "Most cores of the jobs of a user in a bank that wait for resources",
    ),
    (("--max-nodes",), UNLIMITED, "Most nodes of all jobs that run or wait for resources"),
    (("--max-cores",), UNLIMITED, "Most cores of all jobs that run or wait for resources"),
)


def _limits(with_defaults: bool) -> Tuple[Argument, ...]:
    made = []
    for names, default, text in _LIMITS:
        settings: Dict[str, Any] = {"type": int, "metavar": "N", "help": text}
        if with_defaults:
            settings["default"] = default
        made.append((names, settings))
    return tuple(made)


COMMANDS: Table = {
    "add-queue": (_QUEUE, *_limits(with_defaults=True)),
    "view-queue": (_QUEUE, PARSABLE, FORMAT),
    "edit-queue": (_QUEUE, *_limits(with_defaults=False)),
    "delete-queue": (_QUEUE,),
    "list-queues": (FIELDS, JSON, FORMAT),
}
