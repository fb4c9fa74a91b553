"""`headrace fluxqueue release NAME`: a job that is on hold is back in its place."""

from __future__ import annotations

from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.kube.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)
    cluster.add_name(parser)


def main(options: Namespace) -> int:
    return cluster.asked(options, _release)


async def _release(options: Namespace, api: Api, namespace: str) -> None:
    await cluster.put_on_hold(options, api, namespace, False)
    if not options.json:
        print(f"{options.name} is released: back in its place")
