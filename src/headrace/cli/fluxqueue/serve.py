"""The commands of `headrace fluxqueue` that run until they are stopped.

`run` runs the queue. `match` serves the gRPC services on a graph that a client sends.
"""

from __future__ import annotations

import os

from headrace.cli.common import controller_options
from headrace.cli.common.arguments import address, optional_name, port
from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import options as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Optional

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.services.live_graph import Grpc


def _run_arguments(parser: Parser) -> None:
    controller_options.add_to(parser)
    shared.add_store(parser)
    parser.add_argument(
        "--grpc",
        type=address,
        default="",
        metavar="ADDRESS",
        help="Serve gRPC matching on the live graph at this address",
    )
    parser.add_argument(
        "--grpc-queue",
        type=optional_name,
        default="",
        metavar="NAME",
        help="FluxQueue to match on (default: default)",
    )
    shared.add_tls(parser, "grpc-")


def _grpc_of(options: Namespace) -> Optional[Grpc]:
    """The settings of the gRPC services, None without `--grpc`. Raises CommandError."""
    if not options.grpc:
        if options.grpc_queue:
            raise CommandError("--grpc-queue needs --grpc")
        if given := shared.given_tls(options, "grpc-"):
            raise CommandError(f"{' and '.join(given)}: only with --grpc")
        return None
    shared.need_extra()
    from headrace.cluster_queue.services.live_graph import Grpc

    return Grpc(address=options.grpc, queue=options.grpc_queue or "default", tls=shared.tls_of(options, "grpc-"))


def _run(options: Namespace) -> int:
    controller_options.need_extra("the cluster queue")
    from headrace.programs.cluster_queue import serve

    store, grpc = shared.store_of(options), _grpc_of(options)
    if options.statedir:
        os.makedirs(options.statedir, mode=0o700, exist_ok=True)
    try:
        return controller_options.run_until_stopped(options, lambda serving: serve.serve(serving, store, grpc))
    except OSError as exc:
        raise CommandError(str(exc)) from None


def _match_arguments(parser: Parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen at (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port, metavar="PORT", default=4242, help="Port to listen at (default: 4242; 0: a free one)"
    )
    parser.add_argument("--policy", default="first", help="Match policy if the client names none (default: first)")
    parser.add_argument("--graph", default="", metavar="FILE", help="Start with the graph in FILE (JGF)")
    shared.add_tls(parser, "")
    parser.add_argument("--json", action="store_true", help="Print the address it listens at as JSON")


def _match(options: Namespace) -> int:
    shared.need_extra()
    import json

    from headrace.cluster_queue.services import match
    from headrace.sched.graph.policies import by_name

    try:
        by_name(options.policy)
    except ValueError as exc:
        raise CommandError(f"--policy: {exc}") from None
    try:
        graph = shared.bytes_of(options.graph).decode() if options.graph else None
        host = f"[{options.host}]" if ":" in options.host else options.host
        tls = shared.tls_of(options, "")
        chosen = match.Matching(address=f"{host}:{options.port}", policy=options.policy, graph=graph, tls=tls)

        def listens(found: int) -> None:
            said = {"host": options.host, "port": found, "tls": chosen.tls is not None}
            print(json.dumps(said) if options.json else f"listening at {host}:{found}", flush=True)

        match.run(chosen, listens)
    except (OSError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    return 0


def add_arguments(parser: Parser, name: str) -> None:
    (_run_arguments if name == "run" else _match_arguments)(parser)


def main(options: Namespace) -> int:
    return _run(options) if options.action == "run" else _match(options)
