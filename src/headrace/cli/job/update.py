"""`flux update`: change attributes of a submitted job (time limit, queue, name and the like)."""

from __future__ import annotations

import errno
import json
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import job_id
from headrace.client.handle import Handle
from headrace.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

PREFIX = "flux-update: ERROR: "

_LOOKUP_CURRENT = 2


def _parser() -> Parser:
    parser = Parser("flux-update", description="Update attributes of a job")
    add = parser.add_argument
    add("-n", "--dry-run", action="store_true", help="Print the update instead of sending it")
    add("-v", "--verbose", action="count", default=0, help="Show what was updated")
    add("--wait", action="store_true", help="Accepted: an update is in the job's eventlog when the command ends")
    add("jobid", metavar="JOBID", type=job_id, help="The job")
    add("updates", metavar="KEY=VALUE", nargs="+", help="What to change")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    handle = Handle()
    updates: Dict[str, Any] = {}
    for text in args.updates:
        key, sep, value = text.partition("=")
        if not sep or not key:
            raise CommandError(f"Missing value for key {text}: use KEY=VALUE")
        updates[_full_key(key)] = _value(handle, args.jobid, key, value)
    if args.dry_run:
        print(json.dumps(updates))
        return 0
    try:
        handle.rpc("job-manager.update", {"id": args.jobid, "updates": updates}).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    if args.verbose:
        for key, value in updates.items():
            sys.stderr.write(f"flux-update: INFO: updated {key} to {value}\n")
    return 0


def _full_key(key: str) -> str:
    """The path of an attribute that may be given in short."""
    if key == "name":
        return "attributes.system.job.name"
    if key.startswith("attributes."):
        return key
    return "attributes." + key if key.startswith(("system.", "user.")) else "attributes.system." + key


def _value(handle: Handle, job: int, key: str, value: str) -> Any:
    if key == "duration":
        return _duration(handle, job, value)
    try:
        return json.loads(value)
    except ValueError:
        return value


def _duration(handle: Handle, job: int, text: str) -> float:
    """A new time limit in seconds; `+X` and `-X` change the present one."""
    try:
        seconds = duration.parse(text.lstrip("+-"))
    except ValueError:
        raise CommandError(f"invalid Flux standard duration: {text}") from None
    if text[:1] not in ("+", "-"):
        return 0.0 if seconds == float("inf") else float(seconds)
    try:
        found = handle.rpc("job-info.lookup", {"id": job, "keys": ["jobspec"], "flags": _LOOKUP_CURRENT}).get()
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise CommandError("job not found") from None
        raise
    present = json.loads(found["jobspec"])["attributes"]["system"].get("duration", 0)
    if not present:
        raise CommandError(f"duration adjustment {text}: the job has no time limit")
    changed = float(present + (seconds if text[0] == "+" else -seconds))
    if changed <= 0:
        raise CommandError(f"duration adjustment {text} would leave a time limit of {changed} s")
    return changed
