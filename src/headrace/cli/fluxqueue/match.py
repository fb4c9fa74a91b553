"""`headrace fluxqueue match`: the gRPC services on the graph that a client sends."""

from __future__ import annotations

from headrace.cli.common.arguments import port
from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import options as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser, _name: str = "") -> None:
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen at (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port, metavar="PORT", default=4242, help="Port to listen at (default: 4242; 0: a free one)"
    )
    parser.add_argument("--policy", default="first", help="Match policy where a client names none (default: first)")
    parser.add_argument("--graph", default="", metavar="FILE", help="Begin with the graph in FILE (JGF)")
    shared.add_tls(parser, "")
    parser.add_argument("--json", action="store_true", help="Say as JSON where it listens")


def main(options: Namespace) -> int:
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
