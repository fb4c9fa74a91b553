"""`headrace fluxqueue history`: jobs, waits and pod-hours of the past.

They come from a store, or from the queue of a cluster with the user's own rights.
"""

from __future__ import annotations

from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import cluster
from headrace.cli.fluxqueue import options as shared
from headrace.cli.mini.kube import add_cluster
from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

    from headrace.cli.common.arguments import Parser
    from headrace.cluster_queue.store.database import Address
    from headrace.cluster_queue.store.history import Line
    from headrace.k8s.runtime.api import Api


def add_arguments(parser: Parser, _name: str = "") -> None:
    shared.add_store(parser)
    add_cluster(parser)
    parser.add_argument("--since", default="7d", metavar="FSD", help="Start this long ago (default: 7d)")
    parser.add_argument(
        "--by",
        choices=("namespace", "width", "queue"),
        default="",
        help="Print a line for each namespace, width or queue",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON, with times in seconds")


def main(options: Namespace) -> int:
    try:
        duration.parse(options.since)
    except duration.DurationError as exc:
        raise CommandError(f"--since: {exc}") from None
    store = shared.store_of(options)
    if store is None:
        return cluster.asked(options, _from_queue)
    if options.namespace or options.kubeconfig or options.context:
        raise CommandError(
            "use either a store (--store, --statedir) or a cluster (--namespace, --kubeconfig, --context)"
        )
    return _from_store(options, store)


def _from_store(options: Namespace, store: Address) -> int:
    import time

    from headrace.cluster_queue.store import history
    from headrace.cluster_queue.store.database import DatabaseError, reading

    now = time.time()
    since = max(now - duration.parse(options.since), 0.0)
    try:
        with reading(store) as database:
            lines = history.history(database, since, now, options.by)
    except DatabaseError as exc:
        raise CommandError(str(exc)) from None
    if options.json:
        cluster.print_json(history.as_json(lines, since, now, options.by))
    else:
        _print_table(lines, options.by)
    return 0


async def _from_queue(options: Namespace, api: Api, namespace: str) -> None:
    from headrace.cluster_queue import history_requests
    from headrace.cluster_queue.store import history

    try:
        answer = await history_requests.ask(api, namespace, options.since, options.by)
    except history_requests.NotAnswered as exc:
        raise CommandError(str(exc)) from None
    if options.json:
        found = history.as_json(answer.rows, answer.since, answer.until, options.by)
        cluster.print_json({**found, "unread": answer.unread, "omitted": answer.omitted})
        return
    _print_table(answer.rows, options.by)
    if answer.omitted:
        cluster.say(f"{answer.omitted} more {'line does' if answer.omitted == 1 else 'lines do'} not fit in the answer")
    if answer.unread:
        cluster.say(
            f"{answer.unread} {'job' if answer.unread == 1 else 'jobs'} that you may not read: not in these numbers"
        )


def _print_table(lines: List[Line], by: str) -> None:
    """Print a line for each group; the first column is as wide as the longest name."""
    heading = by.upper() if by else ""
    width = max([len(heading), *(len(line.name) for line in lines)])
    columns = ("JOBS", "STARTED", "MEAN", "P50", "P95", "MAX", "POD-HOURS")
    print(f"{heading:{width}}" + "".join(f"{column:>10}" for column in columns))
    for line in lines:
        waits = (line.waits.mean, line.waits.p50, line.waits.p95, line.waits.max)
        texts = [duration.encode(wait) if line.started else "-" for wait in waits]
        cells = (str(line.jobs), str(line.started), *texts, f"{line.pod_hours:.2f}")
        print(f"{line.name:{width}}" + "".join(f"{cell:>10}" for cell in cells))
