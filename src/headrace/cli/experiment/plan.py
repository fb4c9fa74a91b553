"""`headrace experiment plan FILE`, and how commands read an experiment's file."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Sequence

    from headrace.cli.common.arguments import Parser
    from headrace.experiments.plan import Estimate
    from headrace.experiments.values import Cell, Experiment, Plan, Result

# Runs that the table lists, and characters of a command.
_MOST_RUNS, _LONGEST_COMMAND = 12, 60


def add_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="The experiment in YAML")
    add_selection(parser)
    parser.add_argument("--from", dest="earlier", metavar="DIR", help="Estimate time and cost from the results in DIR")
    parser.add_argument("--json", action="store_true", help="Print one JSON object with all cells and runs")


def add_selection(parser: Parser) -> None:
    parser.add_argument(
        "--target",
        default="",
        metavar="TARGET",
        help="Only the cells of this target; if FILE has no targets: local, instance or kubernetes",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Only cells with this value of a parameter, or of cell, job, machine, size or target (may be repeated)",
    )


def load(path: str, target: str = "", only: Sequence[str] = ()) -> Experiment:
    """The experiment of a file, or its cells that are selected. Raises CommandError with a line for each error."""
    from headrace.experiments.file import InvalidExperiment, read
    from headrace.experiments.plan import NothingLeft, narrow

    try:
        experiment = narrow(read(path, target), target, only)
    except InvalidExperiment as exc:
        raise CommandError(str(exc), bare=True) from None
    except NothingLeft as exc:
        raise CommandError(f"{path}: {exc}") from None
    except OSError as exc:
        raise CommandError(f"{exc.filename or path}: {exc.strerror}") from None
    for job in {cell.job.options: cell.job for cell in experiment.cells if cell.job.options}.values():
        try:
            parse_options([*job.options, "--", "true"])
        except ValueError as exc:
            raise CommandError(f"{path}:{job.line}: jobs.{job.name}: {exc}", bare=True) from None
    return experiment


def parse_options(words: List[str]) -> Any:
    """Options of a job and its command, as `flux submit` reads them. Raises ValueError."""
    from headrace.cli.common.arguments import Parser
    from headrace.cli.submit import options as job_options

    parser = Parser("options")
    job_options.add_options(parser, "submit")
    job_options.add_command(parser)
    parser.context = "options"
    try:
        return parser.parse_args(words)
    except CommandError as exc:
        raise ValueError(str(exc)) from None


def main(options: Namespace) -> int:
    from headrace.experiments.plan import in_total, of_cells, plan

    experiment = load(options.file, options.target, options.only)
    runs = plan(experiment)
    estimates = of_cells(experiment, _earlier(options.earlier) if options.earlier else [])
    total = in_total(experiment, estimates)
    for note in experiment.notes:
        sys.stderr.write(f"{note}\n")
    if options.json:
        _print_json(experiment, runs, estimates, total)
    else:
        _print_text(experiment, runs, estimates, total)
    return 0


def _earlier(path: str) -> List[Result]:
    """The results of an earlier experiment. Raises CommandError."""
    from headrace.experiments.store.folder import Folder, FolderError

    folder = Folder(path)
    try:
        return folder.results(folder.load()[1])
    except FolderError as exc:
        raise CommandError(str(exc)) from None


def _print_json(experiment: Experiment, plan: Plan, estimates: Dict[str, Estimate], total: Estimate) -> None:
    import json

    print(
        json.dumps(
            {
                "name": experiment.name,
                "order": plan.order,
                "seed": experiment.seed,
                "cells": [_cell(cell, estimates[cell.id]) for cell in experiment.cells],
                "runs": [{"cell": run.cell, "number": run.number, "warmup": run.warmup} for run in plan.runs],
                "estimate": _estimate(total),
                "notes": list(experiment.notes),
            }
        )
    )


def _cell(cell: Cell, estimate: Estimate) -> Dict[str, Any]:
    repeats = cell.repeats
    return {
        "id": cell.id,
        "job": cell.job.name,
        "target": cell.target,
        "size": cell.size,
        "cluster_size": cell.cluster_size,
        "machine": cell.machine,
        "parameters": cell.parameters,
        "warmup": repeats.warmup,
        "min": repeats.least,
        "max": repeats.most,
        "command": cell.job.command,
        "estimate": _estimate(estimate),
    }


def _estimate(estimate: Estimate) -> Dict[str, Any]:
    return {"seconds": estimate.seconds, "node_hours": estimate.node_hours, "cost": estimate.cost}


def _print_text(experiment: Experiment, plan: Plan, estimates: Dict[str, Estimate], total: Estimate) -> None:
    columns = ["CELL", "TARGET", "MACHINE", "NODES", "RUNS", "TIME", "COST", "COMMAND"]
    rows = []
    for cell in experiment.cells:
        one = estimates[cell.id]
        command = " ".join(cell.job.command.split()) or f"{cell.job.manifest.get('kind', '')} of Kubernetes"
        short = command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 1] + "…"
        rows.append([cell.id, cell.target, cell.machine, str(cell.size), _runs(cell), _time(one), _cost(one), short])
    shown = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    widths = [max(len(row[at]) for row in [columns, *rows]) for at in shown]
    for row in [columns, *rows]:
        print("  ".join(row[at].ljust(width) for at, width in zip(shown, widths)).rstrip())
    print()
    warmups = sum(run.warmup for run in plan.runs)
    apart = f", {warmups} of them to warm up" if warmups else ""
    print(f"cells: {len(experiment.cells)}")
    print(f"runs: {len(plan.runs)}{apart}")
    print(f"order: {_order(experiment, plan)}")
    print(f"time: {_total_time(total)}")
    print(f"cost: {_total_cost(total)}")
    budget = experiment.budget
    for name, most, value in (("cost", budget.cost, total.cost), ("node-hours", budget.node_hours, total.node_hours)):
        if most is not None:
            over = ": the estimate exceeds it, not all runs would begin" if value is not None and value > most else ""
            print(f"budget: {most:g} {name}{': no run would begin' if most == 0 else over}")


def _runs(cell: Cell) -> str:
    """`3`, `1+3` with a warm-up run, or `1+5..20`."""
    repeats = cell.repeats
    number = str(repeats.least) if repeats.least == repeats.most else f"{repeats.least}..{repeats.most}"
    return f"{repeats.warmup}+{number}" if repeats.warmup else number


def _order(experiment: Experiment, plan: Plan) -> str:
    import textwrap

    if plan.order == "random" and experiment.seed is None:
        return "random, drawn when the experiment runs (`seed: NUMBER` chooses one now)"
    names = [f"{run.cell}/{run.number}" for run in plan.runs[:_MOST_RUNS]]
    more = len(plan.runs) - len(names)
    seed = f", seed {plan.seed}" if plan.order == "random" else ""
    rest = f", and {more} more (--json lists all)" if more else ""
    text = f"{plan.order}{seed}: {', '.join(names)}{rest}"
    return textwrap.fill(text, 100, subsequent_indent="       ", break_on_hyphens=False, break_long_words=False)


def _time(estimate: Estimate) -> str:
    from headrace.formats.spec import duration

    return "" if estimate.seconds is None else duration.encode(estimate.seconds)


def _cost(estimate: Estimate) -> str:
    return "" if estimate.cost is None else f"{estimate.cost:.4g}"


def _total_time(total: Estimate) -> str:
    if total.seconds is None:
        return "unknown (--from DIR estimates it from earlier results)"
    rest = f", and {total.unknown} cells of unknown time" if total.unknown else ""
    return f"{_time(total)} one run after the other, {total.node_hours:.4g} node-hours{rest}"


def _total_cost(total: Estimate) -> str:
    if total.cost is None:
        return "unknown (it needs a time, and a price of the target)"
    return _cost(total) + (f", and {total.unknown} cells of unknown cost" if total.unknown else "")
