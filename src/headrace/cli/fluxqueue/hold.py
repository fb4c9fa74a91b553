"""`headrace fluxqueue hold NAME` and `release NAME`: a job that waits is kept out of the order, and is back in it."""

from __future__ import annotations

from headrace.cli.fluxqueue import cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser) -> None:
    cluster.add_to(parser)
    cluster.add_name(parser)


def main(options: Namespace) -> int:
    return cluster.asked(options, _put_on_hold)


async def _put_on_hold(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import client

    is_on_hold = options.action == "hold"
    line = await client.found(api, namespace, options.name)
    await client.put_on_hold(api, line.job, is_on_hold)
    if options.json:
        cluster.print_json({"name": line.job["spec"].get("name"), "namespace": namespace, "hold": is_on_hold})
    elif is_on_hold:
        print(f"{options.name} is on hold: it waits outside the order")
    else:
        print(f"{options.name} is released: back in its place")
