"""`flux queue`: list queues, and open, close, start, stop and drain them (RFC 33)."""

from __future__ import annotations

import errno
import os
import sys
from argparse import SUPPRESS

from headrace.cli.common.arguments import Parser, subcommands
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import queue_names
from headrace.wire.client.handle import Handle
from headrace.wire.query import color
from headrace.wire.query.queue_policy import status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

PREFIX = "flux-queue: ERROR: "

_BY_ADMINISTRATOR = "disabled by administrator"


def _parser() -> Parser:
    parser = Parser("flux-queue", description="Manipulate queues")
    command = subcommands(parser)
    one = command("list", "List queues")
    one.add_argument("-n", "--no-header", action="store_true", help="Do not print the header")
    one.add_argument(
        "-q", "--queue", metavar="QUEUE,...", action="append", type=queue_names, help="Show these queues only"
    )
    wanted = os.environ.get("FLUX_QUEUE_LIST_FORMAT_DEFAULT", "default")
    one.add_argument("-o", "--format", default=wanted, metavar="FORMAT")
    # As in Flux, output is colored here even if stdout is not a terminal.
    default = "never" if color.unwanted() else "always"
    one.add_argument("--color", metavar="WHEN", nargs="?", const="always", default=default, choices=color.WHEN)
    one = command("status", "Show whether queues accept and schedule jobs")
    one.add_argument("-a", "--all", action="store_true", help="Show all queues (default)")
    one.add_argument("-v", "--verbose", action="store_true", help="Also show numbers of jobs")
    one.add_argument("queue", metavar="QUEUE", nargs="?", type=queue_names, help="Show this queue only")
    for name, text in (
        ("enable", "Allow job submission"),
        ("disable", "Refuse job submission"),
        ("start", "Start scheduling"),
        ("stop", "Stop scheduling"),
    ):
        one = command(name, text)
        one.add_argument("-a", "--all", action="store_true", help="All queues")
        one.add_argument("--quiet", action="store_true", help="Do not show the new status")
        one.add_argument("-v", "--verbose", action="store_true", help="Also show numbers of jobs")
        if name in ("disable", "stop"):
            one.add_argument("-m", "--message", metavar="REASON", help="Reason, shown to users")
            one.add_argument("--nocheckpoint", action="store_true", help="Do not keep this change across a restart")
        # Formerly the queue was an option instead of an argument; scripts still use the option.
        one.add_argument("-q", "--queue", dest="named", metavar="NAME", type=queue_names, help=SUPPRESS)
        one.add_argument("queue", metavar="QUEUE", nargs="?", type=queue_names, help="This queue only")
    for name, text in (("drain", "Wait until all jobs are done"), ("idle", "Wait until no job holds resources")):
        one = command(name, text)
        one.add_argument("-t", "--timeout", metavar="DURATION", help="Give up after this time")
        if name == "idle":
            one.add_argument("--quiet", action="store_true", help="Print nothing")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    if args.command == "list":
        from headrace.cli.queue.list import list_queues

        return list_queues(args)
    handle = Handle()
    if args.command in ("drain", "idle"):
        return _wait(handle, args)
    names = _names(handle)
    if getattr(args, "named", None) is not None:
        args.queue = args.named
    if args.command == "status":
        if args.all and args.queue:
            raise CommandError("Only one of QUEUE and --all may be specified")
        _show(handle, [args.queue] if args.queue else names or [""], ("enable", "start"), args.verbose)
        return 0
    return _change(handle, args, names)


def _names(handle: Handle) -> List[str]:
    return list(handle.rpc("job-manager.queue-list").get()["queues"])


def _change(handle: Handle, args: Namespace, names: List[str]) -> int:
    field = "enable" if args.command in ("enable", "disable") else "start"
    if names and not args.queue and not args.all:
        raise CommandError("Named queues detected; use the QUEUE argument or --all to specify queues")
    request: Dict[str, Any] = {field: args.command == field, "all": bool(args.all)}
    request["nocheckpoint"] = getattr(args, "nocheckpoint", False)
    if args.queue:
        request["name"] = args.queue
    reason = getattr(args, "message", None)
    if args.command == "disable" and reason is None:
        reason = _BY_ADMINISTRATOR
    if reason is not None:
        request["reason"] = reason
    try:
        handle.rpc(f"job-manager.queue-{field}", request, 0).get()
    except OSError as exc:
        # As in Flux, the message names the request, which is the same for enable and disable, or start and stop.
        raise CommandError(f"{field}: {exc.strerror}") from None
    if not args.quiet:
        names = _names(handle)
        _show(handle, [args.queue] if args.queue else names or [""], (field,), args.verbose)
    return 0


def _show(handle: Handle, names: List[str], fields: Any, verbose: bool) -> None:
    calls = [(name, status_of(handle, name)) for name in names]
    for name, call in calls:
        status = call.get()
        prefix = f"{name}: " if name else ""
        if "enable" in fields:
            reason = status.get("disable_reason") or _BY_ADMINISTRATOR
            print(f"{prefix}Job submission is " + ("enabled" if status["enable"] else f"disabled: {reason}"))
        if "start" in fields:
            reason = status.get("stop_reason")
            stopped = f"stopped: {reason}" if reason else "stopped"
            print(f"{prefix}Scheduling is " + ("started" if status["start"] else stopped))
    if verbose:
        counts = handle.rpc("job-manager.alloc-query", nodeid=0).get()
        print(f"{counts['queue_length']} alloc requests queued")
        print(f"{counts['alloc_pending']} alloc requests pending to scheduler")
        print(f"{counts['running']} running jobs")


def _wait(handle: Handle, args: Namespace) -> int:
    timeout = None
    if args.timeout:
        from headrace.formats.spec import duration

        timeout = duration.parse(args.timeout)
    try:
        answer = handle.rpc(f"job-manager.{args.command}").get(timeout)
    except TimeoutError:
        raise CommandError(f"{args.command}: timeout") from None
    except OSError as exc:
        if exc.errno == errno.ENOSYS:
            raise CommandError(str(exc.strerror)) from None
        raise
    if args.command == "idle" and not args.quiet:
        sys.stdout.write(f"{answer['pending']} jobs\n")
    return 0
