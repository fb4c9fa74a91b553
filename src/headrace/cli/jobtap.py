"""`flux jobtap`: loads, removes and lists the plugins of the job manager, and shows their state."""

from __future__ import annotations

import argparse
import errno
import json

from headrace.cli.common.arguments import Parser, subcommands
from headrace.cli.common.errors import CommandError
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

PREFIX = "flux-jobtap: ERROR: "


def _parser() -> Parser:
    parser = Parser("flux-jobtap", description="Manage the plugins of the job manager")
    command = subcommands(parser)
    one = command("load", "Load a plugin")
    one.add_argument(
        "-r",
        "--remove",
        metavar="NAME",
        help="First remove the plugins that NAME selects, as `flux jobtap remove` does",
    )
    one.add_argument("plugin", metavar="PLUGIN", help="Path or name of the plugin; mf_priority.so is built in")
    one.add_argument(
        "conf", metavar="KEY=VALUE", nargs=argparse.REMAINDER, help="Configuration of the plugin; VALUE may be JSON"
    )
    one = command("remove", "Remove plugins")
    one.add_argument("plugin", metavar="NAME", help="Name or glob; `all` selects all but those that begin with a dot")
    one = command("list", "List the loaded plugins")
    one.add_argument("-a", "--all", action="store_true", help="Also list plugins that are loaded from the start")
    command("query", "Print the state of a plugin as JSON", "plugin")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    handle = Handle()
    if args.command == "list":
        for name in handle.rpc("job-manager.jobtap", {"query_only": True}).get()["plugins"]:
            if args.all or name[:1] != ".":
                print(name)
    elif args.command == "query":
        print(json.dumps(handle.rpc("job-manager.jobtap-query", {"name": args.plugin}).get()))
    else:
        request: Dict[str, Any] = {"remove": args.plugin} if args.command == "remove" else {"load": args.plugin}
        if args.command == "load":
            if args.conf:
                request["conf"] = _conf(args.conf)
            if args.remove:
                request["remove"] = args.remove
        try:
            handle.rpc("job-manager.jobtap", request).get()
        except OSError as exc:
            if exc.errno == errno.ENOENT:
                raise CommandError(f"{args.plugin} not found") from None
            raise
    return 0


def _conf(words: List[str]) -> Dict[str, Any]:
    """The object that KEY=VALUE words describe; a key with dots is the path of a value in inner objects."""
    conf: Dict[str, Any] = {}
    for word in words:
        path, sep, text = word.partition("=")
        if not sep:
            raise CommandError(f"Missing required value for key {path}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        *parents, last = path.split(".")
        table = conf
        for name in parents:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise CommandError(f"{word}: {name} has a value already")
        table[last] = value
    return conf
