"""`--add-brokers=N` of `flux batch` and `alloc`: additional brokers, to test deeper trees.

They run on the node of rank 0 and have the ranks from 1. Their ranks are excluded from scheduling, so the instance
schedules the same resources as without them.
"""

from __future__ import annotations

from argparse import SUPPRESS

from headrace.cli.common.errors import CommandError
from headrace.formats.spec import jobspec_build, plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Optional

    from headrace.cli.common.arguments import Parser


def add_option(parser: Parser) -> None:
    """Add the option. It is for tests of Flux, so the help does not show it."""
    parser.add_argument("--add-brokers", metavar="N", type=int, default=0, help=SUPPRESS)


def check(args: Namespace) -> None:
    """Raise CommandError if the options do not determine the number of brokers per node."""
    if args.add_brokers < 0:
        raise CommandError("--add-brokers must be 0 or more")
    if args.add_brokers and (not args.nodes or args.nslots):
        raise CommandError("--add-brokers needs whole nodes: -N/--nodes, and no -n/--nslots")


def exclude(args: Namespace, conf: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Add the ranks of the additional brokers to `resource.exclude` of `conf`, so that they get no jobs."""
    if not args.add_brokers:
        return conf
    resource = dict((conf or {}).get("resource") or {})
    ranks = f"1-{args.add_brokers}" if args.add_brokers > 1 else "1"
    resource["exclude"] = f"{resource['exclude']},{ranks}" if resource.get("exclude") else ranks
    return {**(conf or {}), "resource": resource}


def place(args: Namespace, jobspec: Dict[str, Any]) -> None:
    """Add the brokers as tasks of the job on its first node, with ranks before those of other nodes."""
    if not args.add_brokers:
        return
    jobspec["tasks"][0]["count"] = {"total": args.nodes + args.add_brokers}
    del jobspec["attributes"]["system"]["shell"]["options"]["per-resource"]
    blocks: List[List[int]] = [[0, 1, 1 + args.add_brokers, 1]]
    if args.nodes > 1:
        blocks.append([1, args.nodes - 1, 1, 1])
    jobspec_build.set_shell_option(jobspec, "taskmap", {"scheme": "manual", "value": plain_json.dumps(blocks)})
