"""`flux resource`: list resources and their status, drain and undrain nodes."""

from __future__ import annotations

import errno
import os
import sys

from headrace.cli.common.arguments import Parser, subcommands
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import queue_names
from headrace.wire.client.handle import Handle
from headrace.wire.query.color import WHEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Dict, List

PREFIX = "flux-resource: ERROR: "


_QUEUES: Dict[str, Any] = {
    "metavar": "QUEUE,...",
    "action": "append",
    "type": queue_names,
    "help": "Only nodes of these queues",
}


def _format(command: str) -> str:
    return os.environ.get(f"FLUX_RESOURCE_{command.upper()}_FORMAT_DEFAULT", "default")


def _parser() -> Parser:
    parser = Parser("flux-resource", description="List and control resources")
    command = subcommands(parser)
    for name, text in (
        ("list", "List resources by scheduler state"),
        ("info", "Count resources"),
        ("R", "Print the resource set (RFC 20)"),
        ("status", "Show the status of nodes"),
    ):
        one = command(name, text)
        one.add_argument("-s", "--states", "--state", metavar="STATE,...", help="Only these states")
        one.add_argument("-i", "--include", metavar="HOSTS|RANKS", help="Only these nodes")
        one.add_argument("-q", "--queue", **_QUEUES)
        one.add_argument(
            "--from-stdin", action="store_true", help="Read the resource module's answer from standard input"
        )
        if name in ("list", "status"):
            one.add_argument("--skip-empty", action="store_true", help="Leave out empty lines")
            one.add_argument("-o", "--format", metavar="FORMAT", default=_format(name))
            one.add_argument("-n", "--no-header", action="store_true", help="Do not print the header")
        if name == "list":
            one.add_argument("--no-skip-empty", action="store_true", help="Show empty lines, also with --include")
        if name == "status":
            one.add_argument("-L", "--color", metavar="WHEN", nargs="?", const="always", default="auto", choices=WHEN)
    one = command("drain", "List drained nodes, or drain nodes")
    one.add_argument("-f", "--force", action="count", default=0, help="Replace reasons; twice: also the times")
    one.add_argument("-u", "--update", action="store_true", help="Drain nodes, and set the reason if there is none")
    one.add_argument("-n", "--no-header", action="store_true", help="Do not print the header")
    one.add_argument("-o", "--format", metavar="FORMAT", default=_format("drain"))
    one.add_argument("-i", "--include", metavar="HOSTS|RANKS", help="Only these nodes")
    one.add_argument("-q", "--queue", **_QUEUES)
    one.add_argument("targets", nargs="?", metavar="TARGETS", help="Nodes, by host or rank")
    one.add_argument("reason", nargs="*", metavar="REASON", help="Reason, shown with the nodes")
    one = command("undrain", "Return nodes to the scheduler")
    one.add_argument("-f", "--force", action="count", default=0, help="Ignore nodes that are not drained")
    one.add_argument("targets", metavar="TARGETS", help="Nodes, by host or rank")
    # Without a default, argparse's error lists it among the required arguments.
    one.add_argument("reason", nargs="*", default=[], metavar="REASON", help="Reason, for the resource eventlog")
    one = command("shrink", "Remove nodes from the resources permanently")
    one.add_argument("targets", metavar="TARGETS", help="Nodes, by host or rank")
    one = command("reload", "Replace the resource set")
    one.add_argument("-x", "--xml", action="store_true", help="The file is a directory of hwloc XML files")
    one.add_argument(
        "-f", "--force", action="store_true", help="Load the set even if it has ranks that are not in the instance"
    )
    one.add_argument("path", metavar="PATH")
    one = command("eventlog", "Show the resource eventlog")
    one.add_argument("-f", "--format", choices=["text", "json"], default="text")
    one.add_argument("-T", "--time-format", choices=["raw", "iso", "offset", "human", "reltime"], default="raw")
    one.add_argument("-H", "--human", action="store_true", help="Short for --time-format=human")
    one.add_argument("-F", "--follow", action="store_true", help="Show new events as they happen")
    one.add_argument("-w", "--wait", metavar="EVENT", help="Wait for this event and print it")
    one.add_argument("-L", "--color", metavar="WHEN", nargs="?", const="always", default="auto")
    command("acquire-mute", "Stop telling the scheduler about nodes that go down (used at shutdown)")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    if args.command in ("list", "info", "R"):
        from headrace.cli.resource import list as resource_list

        handlers: Dict[str, Callable[[Namespace], int]] = {
            "list": resource_list.list_resources,
            "info": resource_list.info,
            "R": resource_list.R,
        }
        return handlers[args.command](args)
    if args.command == "status" or (args.command == "drain" and args.targets is None):
        from headrace.cli.resource import status

        return status.status(args) if args.command == "status" else status.drained(args)
    return _ACTIONS[args.command](args)


def _reason(words: List[str]) -> str:
    text = " ".join(words)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CommandError(f"the reason ({text!a}) is not UTF-8 text") from None
    return text


def _drain(args: Namespace) -> int:
    if args.force and args.update:
        raise CommandError("Only one of --force or --update may be specified")
    request: Dict[str, Any] = {"targets": args.targets}
    if args.reason:
        request["reason"] = _reason(args.reason)
    if args.force:
        request["mode"] = "overwrite" if args.force == 1 else "force-overwrite"
    elif args.update:
        request["mode"] = "update"
    try:
        Handle().rpc("resource.drain", request, 0).get()
    except OSError as exc:
        # `--force` does not apply to nodes that the configuration excludes.
        if exc.errno == errno.EEXIST and not str(exc).endswith("excluded"):
            raise CommandError(f"{exc}: use --force to replace the reason") from None
        raise
    return 0


def _undrain(args: Namespace) -> int:
    request: Dict[str, Any] = {"targets": args.targets}
    if args.reason:
        request["reason"] = _reason(args.reason)
    if args.force:
        request["mode"] = "force" if args.force == 1 else "force-overwrite"
    try:
        Handle().rpc("resource.undrain", request, 0).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    return 0


def _shrink(args: Namespace) -> int:
    try:
        Handle().rpc("resource.shrink", {"targets": args.targets}, 0).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    return 0


def _reload(args: Namespace) -> int:
    path = os.path.abspath(args.path)
    request = {"path": path, "xml": args.xml, "force": args.force}
    try:
        Handle().rpc("resource.reload", request, 0).get()
    except OSError as exc:
        raise CommandError(str(exc.strerror)) from None
    return 0


def _eventlog(args: Namespace) -> int:
    from headrace.cli.common import eventlog_options
    from headrace.formats.spec.eventlog import Event
    from headrace.wire.query import eventlog_format

    times = "human" if args.human else args.time_format
    formatter = eventlog_format.Formatter(args.format, times, eventlog_format.wants_color(args.color))
    call = Handle().stream("resource.journal", nodeid=0)
    for answer in call:
        if not answer["events"] and not (args.follow or args.wait):
            break
        for entry in answer["events"]:
            event = Event(entry["timestamp"], entry["name"], entry.get("context"))
            if not args.wait or event.name == args.wait:
                eventlog_options.write(formatter.line(event))
            if event.name == args.wait:
                return 0
    sys.stdout.flush()
    return 0


def _acquire_mute(_args: Namespace) -> int:
    Handle().rpc("resource.acquire-mute", nodeid=0).get()
    return 0


_ACTIONS: Dict[str, Callable[[Namespace], int]] = {
    "drain": _drain,
    "undrain": _undrain,
    "shrink": _shrink,
    "reload": _reload,
    "eventlog": _eventlog,
    "acquire-mute": _acquire_mute,
}
