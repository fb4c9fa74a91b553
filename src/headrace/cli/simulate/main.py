"""`headrace simulate`: simulates several queue policies with the jobs of a trace.

The simulation itself is in `sched.queueing`. This module has the arguments, files, clock and table. `sched.queueing`
needs Python 3.10, so it is imported only when the command runs.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import time

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import positive_int
from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, ContextManager, Dict, Iterable, List, Optional, TextIO, Tuple

    from headrace.sched.accounting.tree import Bank, User
    from headrace.sched.graph import Allocation, Graph
    from headrace.sched.queueing.simulate import Run, Simulation
    from headrace.sched.queueing.simulate_metrics import Metrics
    from headrace.sched.queueing.simulate_trace import Trace

PREFIX = "headrace-simulate: ERROR: "
_POLICIES = "fcfs,easy,conservative,hybrid"
# How many faulty lines, and how many jobs that never ran, are shown at most.
_SHOWN = 10
# Seconds before the first progress report, and between two reports if stderr is not a terminal.
_PATIENCE = 2.0
_BETWEEN = 10.0
_GZIP = b"\x1f\x8b"


def _parser() -> Parser:
    parser = Parser(prog="headrace-simulate", description="Simulate queue policies with the jobs of a trace.")
    parser.add_argument(
        "trace",
        metavar="TRACE",
        nargs="?",
        help="Trace in the Standard Workload Format, or a JSON object per line, may be gzipped; - is standard input",
    )
    add = parser.add_argument_group("machine").add_argument
    add("--graph", metavar="FILE", help="Read the machine from a JSON graph (JGF), a GraphML recipe, or R")
    add("--nodes", metavar="N", type=positive_int, help="N equal nodes (default: from the trace's header)")
    add("--cores", metavar="N", type=positive_int, help="Cores per node (default 1)")
    add("--gpus", metavar="N", type=positive_int, help="GPUs per node (default none)")
    what = "Count processors of the trace as cores or nodes (default core; node if every node has one core)"
    add("--unit", choices=("core", "node"), help=what)
    add = parser.add_argument_group("scheduler").add_argument
    add("--policy", metavar="NAMES", default=_POLICIES, help=f"Queue policies to compare (default {_POLICIES})")
    add("--match-policy", metavar="NAME", default="first", help="Match policy that selects resources (default first)")
    add(
        "--queue-depth",
        metavar="N",
        type=positive_int,
        default=500,
        help="Consider at most N waiting jobs per scheduling pass (default 500)",
    )
    add("--reservation-depth", metavar="N", type=positive_int, help="Number of jobs that hybrid reserves a start for")
    add(
        "--fair-share",
        metavar="FSD",
        help="Order jobs by urgency and their users' past usage, which has this half-life",
    )
    add(
        "--fair-share-interval",
        metavar="FSD",
        help="Time between two computations of fair share (default 60s)",
    )
    add("--count-running", action="store_true", help="Count the usage of running jobs for fair share")
    add(
        "--banks",
        metavar="FILE",
        help="Banks, users and shares for --fair-share, as JSON (flux account export-db -F); default: equal shares",
    )
    add = parser.add_argument_group("jobs").add_argument
    add("--limit", metavar="N", type=positive_int, help="Use only the first N jobs")
    add("--synthetic", metavar="N", type=positive_int, help="Generate N jobs instead of reading a trace")
    add("--seed", metavar="N", type=int, default=0, help="Seed for --synthetic (default 0)")
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="Print the figures as JSON instead of a table")
    add("--starts", metavar="FILE", help="Write policy, id, start, end and nodes of each job as CSV")
    add(
        "--html",
        metavar="FILE",
        help="Write a page with the figures, use over time and waits by size",
    )
    add("--record", metavar="FILE", help="Only write a trace: of the instance's past jobs, or of --synthetic jobs")
    return parser


def main(argv: List[str]) -> int:
    """Run the command. The status is 1 if some lines of the trace were not jobs."""
    parser = _parser()
    args = parser.parse_args(argv)
    if sys.version_info < (3, 10):
        raise CommandError("simulations need Python 3.10")
    from headrace.sched.graph import policies as match_policies
    from headrace.sched.queueing import simulate_machine, simulate_trace
    from headrace.sched.queueing.policies import by_name

    if args.record is not None:
        if args.trace is not None:
            parser.error("--record writes a trace and reads none: leave out TRACE")
        return _record(args)
    if args.html == "-":
        parser.error("--html cannot write to standard output: give it a file")
    _check_values(args)
    if args.json and args.starts == "-":
        parser.error("--starts - and --json both write to standard output: give --starts a file")
    policies = [by_name(name.strip()).name for name in args.policy.split(",")]
    try:
        match_policies.by_name(args.match_policy)
    except ValueError as exc:
        raise CommandError(f"match policy: {exc}") from None
    if args.fair_share is None:
        for option, is_given in (
            ("--banks", args.banks is not None),
            ("--fair-share-interval", args.fair_share_interval is not None),
            ("--count-running", args.count_running),
        ):
            if is_given:
                parser.error(f"{option} needs --fair-share")
    if (args.trace is None) == (args.synthetic is None):
        parser.error("give either TRACE or --synthetic")
    lines = list(_lines(args))
    trace = simulate_trace.read(lines, args.unit or "core", args.limit)
    _report_faults(args.trace, trace)
    if not trace.jobs:
        raise CommandError(f"{_shown_name(args.trace)}: no job in it can be simulated")
    graph = _machine(args, trace.header)
    if args.unit is None and simulate_machine.single(graph):
        # With one core per node the result is the same, and matching many nodes is much faster than many cores.
        trace = simulate_trace.read(lines, "node", args.limit)
    with contextlib.ExitStack() as stack:
        starts = stack.enter_context(_create(args.starts)) if args.starts else None
        results = _run(args, policies, graph, trace, starts)
    if args.html:
        with _create(args.html) as file:
            file.write(_page(trace, graph, results))
    if args.json:
        json.dump(_as_json(trace, graph, results), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        # With `--starts -`, standard output has only the CSV, for the next command in a pipe.
        with contextlib.redirect_stdout(sys.stderr if args.starts == "-" else sys.stdout):
            _print_table(trace, graph, results)
    return 1 if trace.faults else 0


def _record(args: argparse.Namespace) -> int:
    """Write a trace instead of simulating one."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_create(args.record))
        if args.synthetic is not None:
            file.writelines(line + "\n" for line in _lines(args))
            return 0
        from headrace.cli.simulate.record import record
        from headrace.wire.client.handle import Handle

        counts = record(stack.enter_context(Handle()), file)
    sys.stderr.write("jobs " + ", ".join(f"{what}: {count}" for what, count in counts.items()) + "\n")
    return 0


# -- input


def _lines(args: argparse.Namespace) -> Iterable[str]:
    """The lines of the trace. Raises CommandError if it cannot be read."""
    if args.synthetic is not None:
        from headrace.sched.queueing.simulate_trace import synthetic

        return synthetic(args.synthetic, args.seed, _processors(args))
    try:
        if args.trace == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(args.trace, "rb") as file:
                data = file.read()
        if data[:2] == _GZIP:
            import gzip

            data = gzip.decompress(data)
    except (OSError, EOFError) as exc:
        raise CommandError(f"{_shown_name(args.trace)}: {getattr(exc, 'strerror', None) or exc}") from None
    # Comments of old logs may have any encoding. A replaced character in a number is reported as a fault later.
    return data.decode(errors="replace").splitlines()


def _shown_name(trace: Optional[str]) -> str:
    return "standard input" if trace == "-" else trace or "synthetic trace"


def _processors(args: argparse.Namespace) -> int:
    graph = _machine(args, {})
    return graph.totals[graph.root].get(args.unit or "core", 1)


def _machine(args: argparse.Namespace, header: Dict[str, str]) -> Graph:
    """The graph that the options or the trace's header describe. Raises CommandError, GraphError."""
    from headrace.sched.graph import GraphError
    from headrace.sched.queueing import simulate_machine

    if args.graph is not None:
        if args.nodes or args.cores or args.gpus:
            raise CommandError("--graph describes the machine: leave out --nodes, --cores and --gpus")
        try:
            with open(args.graph, "rb") as file:
                return simulate_machine.read(file.read())
        except OSError as exc:
            raise CommandError(f"{args.graph}: {exc.strerror}") from None
        except GraphError as exc:
            raise CommandError(f"{args.graph}: {exc}") from None
    nodes, cores = args.nodes, args.cores or 1
    if nodes is None:
        found = simulate_machine.from_header(header)
        if found is None:
            raise CommandError("no description of the machine: give --nodes (and --cores, --gpus) or --graph")
        nodes, cores = found[0], args.cores or found[1]
    return simulate_machine.uniform(nodes, cores, args.gpus or 0)


def _create(path: str) -> ContextManager[TextIO]:
    """Open the file to write to; - is standard output, which stays open."""
    if path == "-":
        return contextlib.nullcontext(sys.stdout)
    try:
        return open(path, "w", newline="", encoding="utf-8")
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


def _report_faults(name: Optional[str], trace: Trace) -> None:
    shown = _shown_name(name)
    for fault in trace.faults[:_SHOWN]:
        sys.stderr.write(f"{shown}:{fault.line}: {fault.rule}\n")
    more = len(trace.faults) - _SHOWN
    if more > 0:
        sys.stderr.write(f"{shown}: and {more} more lines that are not jobs\n")


def _check_values(args: argparse.Namespace) -> None:
    """Raise CommandError for values that would otherwise fail only after the simulations."""
    for option, value in (("--fair-share", args.fair_share), ("--fair-share-interval", args.fair_share_interval)):
        if value is not None:
            try:
                duration.parse(value)
            except ValueError as exc:
                raise CommandError(f"{option}: {exc}") from None
    if args.html and not os.path.isdir(os.path.dirname(args.html) or "."):
        raise CommandError(f"--html {args.html}: no folder {os.path.dirname(args.html)}")


# -- the simulations


def _run(
    args: argparse.Namespace, policies: List[str], graph: Graph, trace: Trace, starts: Optional[TextIO]
) -> List[Tuple[str, Simulation, Metrics, float]]:
    """Simulate each policy; returns (policy, simulation, figures, seconds it took) for each."""
    from headrace.sched.graph import Scheduler
    from headrace.sched.queueing.fair_share import FairShare
    from headrace.sched.queueing.queue import Queue
    from headrace.sched.queueing.simulate import FAIR_SHARE_INTERVAL, simulate
    from headrace.sched.queueing.simulate_metrics import measure

    half_life = duration.parse(args.fair_share) if args.fair_share is not None else None
    interval: float = FAIR_SHARE_INTERVAL
    if args.fair_share_interval is not None:
        interval = duration.parse(args.fair_share_interval)
    banks: Tuple[List[Bank], List[User]] = ([], [])
    if args.banks is not None:
        from headrace.cli.account.fairshare_emulate import read
        from headrace.sched.accounting.emulate import rows

        banks = rows(read(args.banks))
    first = min(job.submit for job in trace.jobs)
    filters = [kind for kind in ("core", "gpu") if kind in graph.types()]
    table = _Starts(starts, graph) if starts is not None else None
    results = []
    for name in policies:
        progress = _Progress(name, len(trace.jobs))
        if table is not None:
            table.policy = name
        reservations = args.reservation_depth if name == "hybrid" else None
        queue = Queue(Scheduler(graph, args.match_policy, filters), name, args.queue_depth, reservations)
        fair = FairShare(half_life, *banks, begin=first) if half_life is not None else None
        begin = time.monotonic()
        outcome = simulate(trace.jobs, queue, table, progress, fair, interval, args.count_running)
        took = time.monotonic() - begin
        progress.close()
        results.append((name, outcome, measure(outcome), took))
    return results


class _Starts:
    """Writes a CSV row for each start as it happens in the simulation."""

    def __init__(self, file: TextIO, graph: Graph) -> None:
        self.policy = ""
        self._graph = graph
        self._write = csv.writer(file, lineterminator="\n").writerow
        self._write(("policy", "id", "start", "end", "nodes"))

    def __call__(self, run: Run, allocation: Allocation) -> None:
        from headrace.formats.spec.hostlist import Hostlist
        from headrace.sched.queueing.simulate_machine import nodes

        names = [self._graph.name(v) for v in nodes(self._graph, allocation.selection)]
        self._write((self.policy, run.job.id, run.start, run.end, Hostlist(names).encode()))


class _Progress:
    """Reports progress of a long simulation on stderr.

    At a terminal one line is redrawn; otherwise each report is a new line.
    """

    def __init__(self, name: str, jobs: int) -> None:
        self._name = name
        self._jobs = jobs
        self._terminal = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._next = self._begin + _PATIENCE
        self._drawn = False

    def __call__(self, ended: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        text = f"{self._name}: {ended} of {self._jobs} jobs ended, {now - self._begin:.0f} s"
        sys.stderr.write(f"\r{text}\033[K" if self._terminal else text + "\n")
        sys.stderr.flush()
        self._drawn = True
        self._next = now + (0.2 if self._terminal else _BETWEEN)

    def close(self) -> None:
        if self._drawn and self._terminal:
            sys.stderr.write("\r\033[K")


# -- output


def _as_json(trace: Trace, graph: Graph, results: List[Tuple[str, Simulation, Metrics, float]]) -> Dict[str, Any]:
    return {
        "trace": {
            "jobs": len(trace.jobs),
            "skipped": trace.skipped,
            "faults": [{"line": fault.line, "rule": fault.rule} for fault in trace.faults],
        },
        "machine": {kind: graph.totals[graph.root].get(kind, 0) for kind in ("node", "core", "gpu")},
        "policies": {
            name: {
                **metrics._asdict(),
                "wait": metrics.wait._asdict(),
                "slowdown": metrics.slowdown._asdict(),
                "never": [{"id": job.id, "reason": reason} for job, reason in outcome.never],
                "events": outcome.events,
                "simulated_in": took,
            }
            for name, outcome, metrics, took in results
        },
    }


def _page(trace: Trace, graph: Graph, results: List[Tuple[str, Simulation, Metrics, float]]) -> str:
    from headrace.cli.simulate.html import page

    have = graph.totals[graph.root]
    outcomes = [(name, outcome) for name, outcome, _, _ in results]
    heading = ". ".join(_heading(trace, graph)) + "."
    names, *rows = _rows(results)
    return page(heading, names[1], rows, outcomes, have.get("core", have.get("node", 0)), have.get("node", 0))


def _heading(trace: Trace, graph: Graph) -> List[str]:
    have = graph.totals[graph.root]
    skipped = "".join(f"; {count} lines skipped: {reason}" for reason, count in trace.skipped.items())
    return [
        f"machine: {have.get('node', 0)} nodes, {have.get('core', 0)} cores, {have.get('gpu', 0)} GPUs",
        f"trace: {len(trace.jobs)} jobs{skipped}",
    ]


def _rows(results: List[Tuple[str, Simulation, Metrics, float]]) -> List[Tuple[str, List[str]]]:
    """Rows of the table: first the names of the policies, then each label with a figure per policy."""
    columns = [_column(outcome, metrics, took) for _, outcome, metrics, took in results]
    rows = [(label, [column[i][1] for column in columns]) for i, (label, _) in enumerate(columns[0])]
    return [("", [name for name, _, _, _ in results]), *rows]


def _print_table(trace: Trace, graph: Graph, results: List[Tuple[str, Simulation, Metrics, float]]) -> None:
    print("\n".join(_heading(trace, graph)))
    print()
    rows = _rows(results)
    widths = [max(len(row[1][i]) for row in rows) for i in range(len(results))]
    label_width = max(len(label) for label, _ in rows)
    for label, cells in rows:
        print(label.ljust(label_width) + "".join("  " + cell.rjust(width) for cell, width in zip(cells, widths)))
    for name, outcome, _, _ in results:
        if outcome.never:
            print(f"\n{name}: {len(outcome.never)} jobs never ran")
            for job, reason in outcome.never[:_SHOWN]:
                print(f"  {job.id}: {reason}")
            if len(outcome.never) > _SHOWN:
                print(f"  and {len(outcome.never) - _SHOWN} more")


def _column(outcome: Simulation, metrics: Metrics, took: float) -> List[Tuple[str, str]]:
    """(label, figure) of one policy, in the order of the table."""
    rows = [
        ("jobs run", str(metrics.ran)),
        ("never ran", str(metrics.never)),
        ("cut at their limit", str(metrics.cut)),
        ("starts backfilled", str(metrics.backfilled)),
        ("makespan, s", str(metrics.makespan)),
    ]
    rows += [(f"{kind} utilisation", f"{100 * share:.2f} %") for kind, share in metrics.utilisation.items()]
    for what, spread, digits in (("wait, s", metrics.wait, 0), ("bounded slowdown", metrics.slowdown, 2)):
        rows.append((f"{what}: mean", f"{spread.mean:.{max(digits, 1)}f}"))
        rows += [(f"{what}: {name}", f"{value:.{digits}f}") for name, value in zip(spread._fields[1:], spread[1:])]
    rows += [
        ("fairness (Jain)", f"{metrics.fairness:.4f}"),
        ("simulated in, s", f"{took:.2f}"),
        ("events/s", f"{outcome.events / took:.0f}" if took else "-"),
    ]
    return rows
