"""`headrace fluxqueue run`: the queue as a program, until it is told to stop."""

from __future__ import annotations

import os

from headrace.cli.common import controller_options
from headrace.cli.common.arguments import address, optional_name
from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import options as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Optional

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.services.live_graph import Grpc


def add_arguments(parser: Parser, _name: str = "") -> None:
    controller_options.add_to(parser)
    shared.add_store(parser)
    parser.add_argument(
        "--grpc",
        type=address,
        default="",
        metavar="ADDRESS",
        help="Where the gRPC services match on the live graph",
    )
    parser.add_argument(
        "--grpc-queue",
        type=optional_name,
        default="",
        metavar="NAME",
        help="The FluxQueue whose nodes these match (default: default)",
    )
    shared.add_tls(parser, "grpc-")


def _grpc_of(options: Namespace) -> Optional[Grpc]:
    """Where a queue serves gRPC, None for nowhere. Raises CommandError."""
    if not options.grpc:
        if options.grpc_queue:
            raise CommandError("--grpc-queue is the FluxQueue that --grpc matches: give that, too")
        if given := shared.given_tls(options, "grpc-"):
            raise CommandError(f"{' and '.join(given)}: for the services of --grpc: give that, too")
        return None
    shared.need_extra()
    from headrace.cluster_queue.services.live_graph import Grpc

    return Grpc(address=options.grpc, queue=options.grpc_queue or "default", tls=shared.tls_of(options, "grpc-"))


def main(options: Namespace) -> int:
    controller_options.need_extra("the cluster queue")
    from headrace.programs.cluster_queue import serve

    store, grpc = shared.store_of(options), _grpc_of(options)
    if options.statedir:
        os.makedirs(options.statedir, mode=0o700, exist_ok=True)
    try:
        return controller_options.run_until_stopped(options, lambda serving: serve.serve(serving, store, grpc))
    except OSError as exc:
        raise CommandError(str(exc)) from None
