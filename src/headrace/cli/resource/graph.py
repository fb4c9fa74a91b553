"""The resource graph: `flux ion-resource` and `headrace resource-query`.

`ion-resource` queries the graph scheduler and changes properties and status of its vertices. Its commands and output
are those of Fluxion's tool of the same name, because sites' scripts call it. Commands that allocate resources without
the job manager are left out. `resource-query` matches job specifications against a graph from a file, like Fluxion's
command of that name. The graph engine needs Python 3.10, so it is imported only when `resource-query` runs.
"""

from __future__ import annotations

import json
import sys
import time

from headrace.cli.common.arguments import Parser, subcommands
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import job_id
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List


PREFIX = "flux-{name}: ERROR: "

_SERVICE = "sched-fluxion-resource"
_RULE = "=" * 80


def _parser() -> Parser:
    parser = Parser("flux-ion-resource", description="Query the graph scheduler")
    command = subcommands(parser)
    one = command("find", "Find resources that match criteria such as 'sched-now=free and status=up'", "criteria")
    one.add_argument("--format", help="Output format: rv1_nosched (default), rv1, jgf, rlite, simple or pretty_simple")
    one = command("info", "Show the state of a job's allocation, its start time and the match overhead")
    one.add_argument("jobid", metavar="JOBID", type=job_id)
    command("stats", "Show the size of the graph and match counts")
    command("status", "Show all, down and allocated resources")
    command("params", "Show the scheduler's parameters")
    command("set-property", "Set a property of a resource", "resource", "setting")
    command("get-property", "Show a property of a resource", "resource", "key")
    command("set-status", "Mark a resource up or down", "resource", "status")
    command("satisfiability", "Check whether an idle system could run a jobspec", "jobspec")
    return parser


def _ion_resource(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    return int(_ACTIONS[args.command](args))


def _ask(method: str, body: Dict[str, Any]) -> Any:
    return Handle().rpc(f"{_SERVICE}.{method}", body).get()


def _matched(what: str, found: str) -> int:
    print(f"{what}\n{_RULE}\nMATCHED RESOURCES:\n{found}")
    return 0


def _find(args: Namespace) -> int:
    body = {"criteria": args.criteria}
    if args.format:
        body["format"] = args.format
    return _matched(f"CRITERIA\n'{args.criteria}'", json.dumps(_ask("find", body)["R"]))


def _info(args: Namespace) -> int:
    found = _ask("info", {"jobid": args.jobid})
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found["at"]))
    for row in (("JOBID", "STATUS", "AT", "OVERHEAD (Secs)"), (found["jobid"], found["status"], at, found["overhead"])):
        print(" ".join(f"{cell!s:20}" for cell in row))
    return 0


def _stats(args: Namespace) -> int:
    found = _ask("stats-get", {})
    print("Num. of Vertices: ", found["V"])
    print("Num. of Edges: ", found["E"])
    print("Num. of Vertices by Rank: ", json.dumps(found["by_rank"]))
    print("Graph Load Time: ", found["load-time"], "Secs")
    print("Graph Upime: ", found["graph-uptime"], "Secs")
    print("Num. of Total Jobs Successfully Matched: ", found["match"]["succeeded"]["njobs"])
    print("Num. of Jobs with Failed Matches: ", found["match"]["failed"]["njobs"])
    return 0


def _status(args: Namespace) -> int:
    criteria = ("all: 'status=up or status=down'", "down: 'status=down'", "allocated: 'sched-now=allocated'")
    return _matched("\n".join(("CRITERIA", *criteria)), json.dumps(_ask("status", {})))


def _params(args: Namespace) -> int:
    print(json.dumps(_ask("params", {})))
    return 0


def _set_property(args: Namespace) -> int:
    _ask("set_property", {"sp_resource_path": args.resource, "sp_keyval": args.setting})
    return 0


def _get_property(args: Namespace) -> int:
    print(args.key, "=", _ask("get_property", {"gp_resource_path": args.resource, "gp_key": args.key})["values"])
    return 0


def _set_status(args: Namespace) -> int:
    _ask("set_status", {"resource_path": args.resource, "status": args.status})
    return 0


def _satisfiability(args: Namespace) -> int:
    try:
        with sys.stdin if args.jobspec == "-" else open(args.jobspec, encoding="utf-8") as stream:
            jobspec = json.load(stream)
    except OSError as exc:
        raise CommandError(f"{args.jobspec}: {exc.strerror}") from None
    except ValueError as exc:
        raise CommandError(f"{args.jobspec}: not a JSON jobspec: {exc}") from None
    _ask("satisfiability", {"jobspec": jobspec})
    print(f"{_RULE}\nSatisfiable request\n{_RULE}")
    return 0


_ACTIONS = {
    "find": _find,
    "info": _info,
    "stats": _stats,
    "status": _status,
    "params": _params,
    "set-property": _set_property,
    "get-property": _get_property,
    "set-status": _set_status,
    "satisfiability": _satisfiability,
}


def _try_jobspecs(argv: List[str]) -> int:
    """Run `resource-query`; returns the exit status."""
    try:
        from headrace.sched.graph import resource_query
    except ImportError as exc:
        raise CommandError(f"the resource graph is not available here: {exc}") from None
    return resource_query.main(argv)


def main(argv: List[str], name: str) -> int:
    return _try_jobspecs(argv) if name == "resource-query" else _ion_resource(argv)
