"""`headrace mini scale NAME SIZE`: more or fewer pods for a MiniCluster on Kubernetes."""

from __future__ import annotations

from headrace.cli.mini.kube import add_cluster, add_name, connected
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_name(parser)
    parser.add_argument("size", metavar="SIZE", type=int, help="How many pods")


def main(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import jobs
        from headrace.minicluster.client import clusters as client

        foreign = jobs.kind_and_name(options.name)
        if foreign:
            raise client.NotFoundError(jobs.resizing(namespace, *foreign, options.size))
        await client.scale(api, namespace, options.name, options.size, tell)
        print(f"MiniCluster/{options.name} scaled to {options.size}")
        return 0

    return connected(options, act)
