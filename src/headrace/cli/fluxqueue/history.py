"""`headrace fluxqueue history`: jobs, waits and pod-hours of the past, from the store."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError
from headrace.cli.fluxqueue import store_options
from headrace.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

    from headrace.cli.common.arguments import Parser
    from headrace.fluxqueue.store.history import Line


def add_arguments(parser: Parser) -> None:
    store_options.add_to(parser)
    parser.add_argument("--since", default="7d", metavar="FSD", help="How long ago the span begins (default: 7d)")
    parser.add_argument("--by", choices=("namespace", "width", "queue"), default="", help="A line for each of these")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table, with times in seconds")


def main(options: Namespace) -> int:
    import json
    import time

    from headrace.fluxqueue.store import history
    from headrace.fluxqueue.store.database import StoreError, reading

    store = store_options.store_of(options)
    if store is None:
        raise CommandError("history is in a store: name it with --store or --statedir, as the queue was told")
    now = time.time()
    try:
        since = max(now - duration.parse(options.since), 0.0)
    except duration.DurationError as exc:
        raise CommandError(f"--since: {exc}") from None
    try:
        with reading(store) as database:
            lines = history.history(database, since, now, options.by)
    except StoreError as exc:
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
