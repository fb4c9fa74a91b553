"""`headrace fluxqueue run|manifests|match`: the queue for all pods of a cluster, its install, and gRPC matching."""

from __future__ import annotations

from headrace.cli.common import controller_options
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError, missing_extra, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

    from headrace.fluxqueue.services.server import Tls

PREFIX = "headrace-fluxqueue: "


def _parser() -> Parser:
    parser = Parser(
        "headrace fluxqueue",
        usage="headrace fluxqueue {run,manifests,match} [OPTIONS]",
        description="Run the queue in which the pods of labelled namespaces wait, or print what installs it",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    run = commands.add_parser("run", prog="headrace fluxqueue run", help="Run the queue until it is told to stop")
    controller_options.add_to(run)
    prints = commands.add_parser(
        "manifests", prog="headrace fluxqueue manifests", help="Print the objects that install the queue"
    )
    prints.add_argument("-n", "--namespace", default="", metavar="NAME", help="The queue's own namespace")
    prints.add_argument("--image", default="", help="Image of the queue, which is that of the operator")
    prints.add_argument("--replicas", type=int, default=1, metavar="N", help="Processes; one acts (default: 1)")
    prints.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Fail",
        help="While the queue is away, refuse what is created in labelled namespaces (the default), or let it run",
    )
    match = commands.add_parser(
        "match", prog="headrace fluxqueue match", help="Serve gRPC matching on the graph that a client sends"
    )
    match.add_argument("--host", default="127.0.0.1", help="Address to listen at (default: 127.0.0.1)")
    match.add_argument("--port", type=int, default=4242, help="Port to listen at (default: 4242; 0: a free one)")
    match.add_argument("--policy", default="first", help="Match policy where a client names none (default: first)")
    match.add_argument("--graph", default="", metavar="FILE", help="Begin with the graph in FILE (JGF)")
    _add_tls(match, "")
    match.add_argument("--json", action="store_true", help="Say as JSON where it listens")
    return parser


def _add_tls(parser: Parser, prefix: str) -> None:
    parser.add_argument(f"--{prefix}tls-cert", dest="tls_cert", default="", metavar="FILE", help="Certificate (PEM)")
    parser.add_argument(f"--{prefix}tls-key", dest="tls_key", default="", metavar="FILE", help="Its key (PEM)")
    parser.add_argument(
        f"--{prefix}client-ca",
        dest="client_ca",
        default="",
        metavar="FILE",
        help="Take only clients with a certificate that one of FILE has signed",
    )


def _tls(options: Namespace, prefix: str) -> Tls | None:
    """The certificates that the options name. Raises CommandError."""
    from headrace.fluxqueue.services.server import Tls

    if bool(options.tls_cert) != bool(options.tls_key) or (options.client_ca and not options.tls_cert):
        raise CommandError(f"--{prefix}tls-cert and --{prefix}tls-key go together, and --{prefix}client-ca with them")
    if not options.tls_cert:
        return None
    return Tls(*(_bytes_of(name) if name else b"" for name in (options.tls_cert, options.tls_key, options.client_ca)))


def _bytes_of(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as exc:
        raise CommandError(refusal(exc)) from None


def _match(options: Namespace) -> int:
    try:
        import google.protobuf  # noqa: F401 - only whether they are installed
        import grpc  # noqa: F401
    except ImportError as exc:
        raise missing_extra("headrace fluxqueue match", "fluxqueue", exc) from None
    import asyncio
    import json

    from headrace.fluxqueue.services import match
    from headrace.graph.policies import by_name

    try:
        by_name(options.policy)
        graph = _bytes_of(options.graph).decode() if options.graph else None
        host = f"[{options.host}]" if ":" in options.host else options.host
        chosen = match.Matching(
            address=f"{host}:{options.port}", policy=options.policy, graph=graph, tls=_tls(options, "")
        )

        def listens(port: int) -> None:
            said = {"host": options.host, "port": port, "tls": chosen.tls is not None}
            print(json.dumps(said) if options.json else f"listening at {host}:{port}", flush=True)

        asyncio.run(match.serve(chosen, listens))
    except (OSError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    return 0


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action == "match":
        return _match(options)
    controller_options.need_extra("the cluster queue")
    if options.action == "manifests":
        from headrace.fluxqueue.install import Install, install_file

        given = {"namespace": options.namespace, "image": options.image, "replicas": options.replicas}
        chosen = {name: value for name, value in given.items() if value}
        print(install_file(Install(**chosen, failure_policy=options.failure_policy)), end="")
        return 0

    from headrace.fluxqueue import serve

    return controller_options.run_until_stopped(options, serve.serve)
