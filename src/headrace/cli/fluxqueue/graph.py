"""`headrace fluxqueue graph`: the graph that a queue plans with."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)
    parser.add_argument("--queue", default="default", metavar="NAME", help="The FluxQueue (default: default)")
    parser.add_argument("--jgf", action="store_true", help="Print it in the JSON Graph Format")


def main(options: Namespace) -> int:
    return cluster.asked(options, _graph)


async def _graph(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client
    from headrace.sched.graph.formats import export

    found = await client.nodes_seen(api, namespace)
    if options.queue in found.problems:
        raise CommandError(f"FluxQueue {options.queue} is Invalid: {found.problems[options.queue]}")
    if options.queue not in found.queues:
        raise CommandError(f"there is no FluxQueue {options.queue}; there are {', '.join(found.queues) or 'none'}")
    graph = found.graph(options.queue)
    if options.jgf or options.json:
        sys.stdout.write(export.jgf(graph))
        return
    depths = {graph.root: 0}
    for v in graph.preorder(graph.root):
        depths[v] = depths.get(graph.parent[v], -1) + 1
        size = f" {graph.size[v]}{graph.unit.get(v, '')}" if not graph.children[v] else ""
        down = "" if graph.up[v] else " (not usable)"
        print(f"{'  ' * depths[v]}{graph.type[v]} {graph.name(v)}{size}{down}")
