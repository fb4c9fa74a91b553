"""What the commands share that ask the API server, with the user's own rights: the connection, names, tables."""

from __future__ import annotations

import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.mini.kube import add_cluster, connected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Awaitable, Callable, Dict, Sequence

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.client import Line
    from headrace.k8s.runtime.api import Api


def add_to(parser: Parser) -> None:
    """Add the options that choose a cluster and a namespace in it, and JSON."""
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")


def add_name(parser: Parser) -> None:
    """Add the argument NAME."""
    parser.add_argument("name", metavar="NAME", help="Name of the Job, pod or other object, or KIND/NAME")


def asked(options: Namespace, act: Callable[[Namespace, Api, str], Awaitable[None]]) -> int:
    """Run `act(options, api, namespace)` with a connection to the chosen cluster. Raises CommandError."""

    async def run(api: Api, namespace: str) -> int:
        from headrace.cluster_queue.client import NoSuchJob
        from headrace.k8s.runtime.api import ApiError

        try:
            await act(options, api, namespace)
        except NoSuchJob as exc:
            raise CommandError(str(exc)) from None
        except ApiError as exc:
            # Of an object that is not there, the API server names the reason.
            if exc.status != 404 or exc.reason:
                raise
            how = "headrace fluxqueue manifests | kubectl apply --server-side -f -"
            raise CommandError(f"this cluster does not have the queue ({exc.message}). {how} installs it") from None
        return 0

    return connected(options, run)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns of one width each."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def say(text: str) -> None:
    """Say on standard error what belongs to no table."""
    sys.stderr.write(f"{text}\n")


def summary(line: Line) -> Dict[str, Any]:
    """A job as JSON has it."""
    meta, spec = line.job["metadata"], line.job["spec"]
    names = {"name": spec.get("name"), "namespace": meta["namespace"], "fluxjob": meta["name"]}
    place = {"position": line.position or None, "exact": line.is_exact}
    return {**names, "queue": spec.get("queue"), **place, "spec": spec, "status": line.job.get("status") or {}}
