"""`headrace mini logs NAME`: what a pod of a cluster on Kubernetes has written."""

from __future__ import annotations

import os

from headrace.cli.mini.kube import add_cluster, add_name, connected
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_pod(parser: Parser) -> None:
    """The options that choose a pod and a container of it."""
    parser.add_argument("-p", "--pod", type=int, default=0, metavar="INDEX", help="The pod's index (default: the lead)")
    parser.add_argument("-g", "--group", default="", metavar="NAME", help="A pod of this group")
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="Container (default: the one with Flux)")


def add_arguments(parser: Parser) -> None:
    add_cluster(parser)
    add_pod(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="Go on until the container ends, also in a pod that replaces this one",
    )
    add_name(parser, with_kinds=True)


def main(options: Namespace) -> int:
    async def act(api: Api, namespace: str) -> int:
        from headrace.flux_jobs.client import containers

        chosen = await containers.choose(api, namespace, options.name, options.pod, options.group, options.container)
        async for chunk in containers.logs(api, chosen, options.follow, tell):
            _write(chunk)
        return 0

    return connected(options, act)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
