"""`headrace fluxqueue run|manifests|match|history`: the queue for all pods of a cluster, its install, gRPC matching,
and its past.
"""

from __future__ import annotations

import os
import sys

from headrace.cli import fluxqueue_jobs
from headrace.cli.common import controller_options
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError, missing_extra, refusal
from headrace.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List, Optional

    from headrace.fluxqueue.services.live_graph import Grpc
    from headrace.fluxqueue.services.server import Tls
    from headrace.fluxqueue.store.database import Address
    from headrace.fluxqueue.store.history import Line

PREFIX = "headrace-fluxqueue: "
# What the program is called in usage: as a plugin `kubectl fluxqueue`.
_program = "headrace fluxqueue"


def _parser() -> Parser:
    parser = Parser(
        _program,
        usage=f"{_program} {{run,manifests,match,history,{','.join(fluxqueue_jobs.ACTIONS)}}} [OPTIONS]",
        description="Run the queue in which the pods of labelled namespaces wait, print what installs it, or what was",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    run = commands.add_parser("run", prog=f"{_program} run", help="Run the queue until it is told to stop")
    controller_options.add_to(run)
    _add_store(run)
    run.add_argument("--grpc", default="", metavar="ADDRESS", help="Where the gRPC services match on the live graph")
    run.add_argument("--grpc-queue", default="default", metavar="NAME", help="The FluxQueue whose nodes these match")
    _add_tls(run, "grpc-")
    prints = commands.add_parser(
        "manifests", prog=f"{_program} manifests", help="Print the objects that install the queue"
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
    prints.add_argument("--store", default="", metavar="URL", help="Keep what was in postgresql://USER@HOST/NAME")
    prints.add_argument(
        "--store-secret", default="", metavar="NAME", help="The Secret that has its password under the key password"
    )
    prints.add_argument(
        "--store-claim", default="", metavar="NAME", help="Keep what was in a file, in the volume of this claim"
    )
    match = commands.add_parser(
        "match", prog=f"{_program} match", help="Serve gRPC matching on the graph that a client sends"
    )
    match.add_argument("--host", default="127.0.0.1", help="Address to listen at (default: 127.0.0.1)")
    match.add_argument("--port", type=int, default=4242, help="Port to listen at (default: 4242; 0: a free one)")
    match.add_argument("--policy", default="first", help="Match policy where a client names none (default: first)")
    match.add_argument("--graph", default="", metavar="FILE", help="Begin with the graph in FILE (JGF)")
    _add_tls(match, "")
    match.add_argument("--json", action="store_true", help="Say as JSON where it listens")
    history = commands.add_parser(
        "history", prog=f"{_program} history", help="Jobs, waits and pod-hours of the past, from the store"
    )
    _add_store(history)
    history.add_argument("--since", default="7d", metavar="FSD", help="How long ago the span begins (default: 7d)")
    history.add_argument("--by", choices=("namespace", "width", "queue"), default="", help="A line for each of these")
    history.add_argument("--json", action="store_true", help="JSON instead of a table, with times in seconds")
    fluxqueue_jobs.add_to(commands, _program)
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


def _need_grpc() -> None:
    """Raise CommandError where what the gRPC services need is not installed."""
    try:
        import google.protobuf  # noqa: F401 - only whether they are installed
        import grpc  # noqa: F401
    except ImportError as exc:
        raise missing_extra("gRPC", "fluxqueue", exc) from None


def _grpc_of(options: Namespace) -> Optional[Grpc]:
    """Where a queue serves gRPC, None for nowhere. Raises CommandError."""
    if not options.grpc:
        return None
    _need_grpc()
    from headrace.fluxqueue.services.live_graph import Grpc

    return Grpc(address=options.grpc, queue=options.grpc_queue, tls=_tls(options, "grpc-"))


def _match(options: Namespace) -> int:
    _need_grpc()
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


def _add_store(parser: Parser) -> None:
    """Add the options of the database with what was."""
    parser.add_argument("--store", default="", metavar="URL", help="sqlite:PATH or postgresql://USER@HOST/NAME")
    parser.add_argument(
        "--store-password-file", default="", metavar="FILE", help="Where the password of PostgreSQL's user is"
    )
    parser.add_argument(
        "--statedir", default="", metavar="DIR", help="Without --store, the store is the file store.sqlite in it"
    )


def _store_of(options: Namespace) -> Optional[Address]:
    """The database that options ask for, None for none. Raises CommandError."""
    from headrace.fluxqueue.store.database import Address

    if not options.store and not options.statedir:
        if options.store_password_file:
            raise CommandError("--store-password-file is the password of a --store: give that, too")
        return None
    try:
        store = Address(options.store or f"sqlite:{options.statedir}/store.sqlite", options.store_password_file)
    except ValueError as exc:
        raise CommandError(f"--store: {exc}") from None
    if not store.path:
        try:
            import psycopg  # noqa: F401 - only whether it is installed
        except ImportError as exc:
            raise missing_extra("a store in PostgreSQL", "fluxqueue", exc) from None
    return store


def _history(options: Namespace) -> int:
    """Print what the store says of the past."""
    import json
    import time

    from headrace.fluxqueue.store import history
    from headrace.fluxqueue.store.database import StoreError, reading

    store = _store_of(options)
    if store is None:
        raise CommandError("history is in a store: name it with --store or --statedir, as the queue was told")
    now = time.time()
    try:
        since = max(now - duration.parse(options.since), 0.0)
        with reading(store) as database:
            lines = history.history(database, since, now, options.by)
    except (duration.DurationError, StoreError) as exc:
        raise CommandError(str(exc)) from None
    if options.json:
        print(json.dumps(history.as_json(lines, since, now, options.by), indent=1))
    else:
        _print_table(lines, options.by)
    return 0


def _print_table(lines: List[Line], by: str) -> None:
    """A line a group; the first column is as wide as its longest name."""
    heading = by.upper() if by else ""
    width = max([len(heading), *(len(line.name) for line in lines)])
    columns = ("JOBS", "STARTED", "MEAN", "P50", "P95", "MAX", "POD-HOURS")
    print(f"{heading:{width}}" + "".join(f"{column:>10}" for column in columns))
    for line in lines:
        waits = (line.waits.mean, line.waits.p50, line.waits.p95, line.waits.max)
        texts = [duration.encode(wait) if line.started else "-" for wait in waits]
        cells = (str(line.jobs), str(line.started), *texts, f"{line.pod_hours:.2f}")
        print(f"{line.name:{width}}" + "".join(f"{cell:>10}" for cell in cells))


def kubectl() -> int:
    """The plugin `kubectl fluxqueue`, which kubectl runs as `kubectl-fluxqueue`."""
    from headrace.cli.main import headrace

    global PREFIX, _program
    PREFIX, _program = "kubectl-fluxqueue: ", "kubectl fluxqueue"
    return headrace(["fluxqueue", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action in fluxqueue_jobs.ACTIONS:
        return fluxqueue_jobs.main(options)
    if options.action == "match":
        return _match(options)
    if options.action == "history":
        return _history(options)
    if options.action == "manifests":
        from headrace.fluxqueue.install import Install, install_file

        given = {"namespace": options.namespace, "image": options.image, "replicas": options.replicas}
        chosen = {name: value for name, value in given.items() if value}
        kept = {name: getattr(options, name) for name in ("store", "store_secret", "store_claim")}
        try:
            install = Install(**chosen, **kept, failure_policy=options.failure_policy)
        except ValueError as exc:
            raise CommandError(str(exc)) from None
        print(install_file(install), end="")
        return 0

    controller_options.need_extra("the cluster queue")
    from headrace.fluxqueue import serve

    store, grpc = _store_of(options), _grpc_of(options)
    if options.statedir:
        os.makedirs(options.statedir, mode=0o700, exist_ok=True)
    try:
        return controller_options.run_until_stopped(options, lambda serving: serve.serve(serving, store, grpc))
    except OSError as exc:
        raise CommandError(str(exc)) from None
