"""`flux update`: changes attributes of a submitted job, such as time limit, queue or name."""

from __future__ import annotations

import errno
import json
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import job_id
from headrace.formats.spec import duration
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

PREFIX = "flux-update: ERROR: "

_DURATION = "attributes.system.duration"
_LOOKUP_CURRENT = 2


def _parser() -> Parser:
    parser = Parser("flux-update", description="Update attributes of a job")
    add = parser.add_argument
    add("-n", "--dry-run", "--dry", action="store_true", help="Print the update instead of sending it")
    add("-v", "--verbose", action="count", default=0, help="Show what was updated")
    add(
        "--wait",
        action="store_true",
        help="No effect: the update is always in the job's eventlog when the command ends",
    )
    add("jobid", metavar="JOBID", type=job_id, help="The job")
    add("updates", metavar="KEY=VALUE", nargs="+", help="Attributes and their new values")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    updates: Dict[str, Any] = {}
    for text in args.updates:
        key, sep, value = text.partition("=")
        if not sep or not key:
            raise CommandError(f"Missing value for key {text}: use KEY=VALUE")
        path = _full_key(key)
        updates[path] = _duration(args.jobid, value) if path == _DURATION else _plain(value)
    if args.dry_run:
        print(json.dumps(updates))
        return 0
    try:
        Handle().rpc("job-manager.update", {"id": args.jobid, "updates": updates}).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    if args.verbose:
        for key, value in updates.items():
            sys.stderr.write(f"flux-update: INFO: updated {key} to {value}\n")
    return 0


def _full_key(key: str) -> str:
    """The path in the jobspec for a key, which may be a short form."""
    if key == "name":
        return "attributes.system.job.name"
    return key if key.startswith(("attributes.", "resources.", "tasks.")) else f"attributes.system.{key}"


def _plain(value: str) -> Any:
    """Parse a value as JSON; a value that is not JSON is a string."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _duration(job: int, text: str) -> float:
    """The new time limit in seconds, 0 for none; `+X` and `-X` are relative to the current one."""
    relative = text[:1] in ("+", "-")
    try:
        seconds = duration.parse(text[1:] if relative else text)
    except ValueError:
        raise CommandError(f"invalid Flux standard duration: {text}") from None
    changed = float(seconds)
    if relative:
        present = _present_duration(job)
        if not present:
            raise CommandError(f"duration adjustment {text}: the job has no time limit")
        changed = present + (changed if text[0] == "+" else -changed)
        if changed <= 0:
            raise CommandError(f"duration adjustment {text} would leave a time limit of {changed} s")
    return 0.0 if changed == float("inf") else changed


def _present_duration(job: int) -> float:
    """The current time limit of a job in seconds, with all updates; 0 for none."""
    try:
        found = Handle().rpc("job-info.lookup", {"id": job, "keys": ["jobspec"], "flags": _LOOKUP_CURRENT}).get()
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise CommandError("job not found") from None
        raise
    return float(json.loads(found["jobspec"])["attributes"]["system"].get("duration", 0))
