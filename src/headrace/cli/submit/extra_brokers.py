"""`--add-brokers=N` of `flux batch` and `flux alloc`: N brokers beyond one a node, to try out trees of more levels.

They have the ranks from 1 on, on the node of rank 0. What the instance schedules is the same as without them, because
their ranks are excluded.
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
    """An option for those who test Flux, which help does not show."""
    parser.add_argument("--add-brokers", metavar="N", type=int, default=0, help=SUPPRESS)


def check(args: Namespace) -> None:
    """Raises CommandError where the number of brokers a node does not follow from the options."""
    if args.add_brokers < 0:
        raise CommandError("--add-brokers must be 0 or more")
    if args.add_brokers and (not args.nodes or args.nslots):
        raise CommandError("--add-brokers needs whole nodes: -N/--nodes, and no -n/--nslots")


def exclude(args: Namespace, conf: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """`conf` with the ranks of the extra brokers left out of what the instance schedules (`resource.exclude`)."""
    if not args.add_brokers:
        return conf
    resource = dict((conf or {}).get("resource") or {})
    ranks = f"1-{args.add_brokers}" if args.add_brokers > 1 else "1"
    resource["exclude"] = f"{resource['exclude']},{ranks}" if resource.get("exclude") else ranks
    return {**(conf or {}), "resource": resource}


def place(args: Namespace, jobspec: Dict[str, Any]) -> None:
    """Make the extra brokers tasks of the job, on its first node between rank 0 and the brokers of the others."""
    if not args.add_brokers:
        return
    jobspec["tasks"][0]["count"] = {"total": args.nodes + args.add_brokers}
    del jobspec["attributes"]["system"]["shell"]["options"]["per-resource"]
    blocks: List[List[int]] = [[0, 1, 1 + args.add_brokers, 1]]
    if args.nodes > 1:
        blocks.append([1, args.nodes - 1, 1, 1])
    jobspec_build.set_shell_option(jobspec, "taskmap", {"scheme": "manual", "value": plain_json.dumps(blocks)})
