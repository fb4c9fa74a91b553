"""`headrace mini run|validate FILE`: a MiniCluster file checked, or run as brokers of this machine."""

from __future__ import annotations

import json
import os
import sys

from headrace.cli.arguments import Parser
from headrace.cli.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from headrace.minicluster.local import Result
    from headrace.minicluster.validate import Source

PREFIX = "headrace-mini: "


def _parser() -> Parser:
    parser = Parser(
        "headrace mini",
        usage="headrace mini {run,validate} [OPTIONS] FILE",
        description="Check a MiniCluster file of the Flux Operator, or run it as brokers of this machine",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    validate = commands.add_parser("validate", prog="headrace mini validate", help="say everything wrong with FILE")
    validate.add_argument("file", metavar="FILE", help="a MiniCluster in YAML ('-' is standard input)")
    run = commands.add_parser("run", prog="headrace mini run", help="run FILE as brokers of this machine")
    run.add_argument("--json", action="store_true", help="print the times as one JSON object on the last line")
    run.add_argument("-q", "--quiet", action="store_true", help="print nothing but the job's output")
    run.add_argument("file", metavar="FILE", help="a MiniCluster in YAML ('-' is standard input)")
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    source = _load(options.file)
    if options.action == "validate":
        from headrace.broker.config_keys import doubts
        from headrace.minicluster.plan import given_config

        spec = source.cluster.spec
        # At a run the lead says so.
        for line in doubts(given_config(source.cluster.flux.broker_config)):
            sys.stderr.write(f"{options.file}: spec.flux.brokerConfig: {line}\n")
        print(f"{options.file}: MiniCluster {source.cluster.name} is valid (size {spec.size}, tasks {spec.tasks})")
        return 0
    return _run(source, options.file, options.json, options.quiet)


def _load(path: str) -> Source:
    from headrace.minicluster.documents import LARGEST
    from headrace.minicluster.plan import Mode, make_plan, mode_of
    from headrace.minicluster.problems import InvalidMiniCluster
    from headrace.minicluster.validate import load

    try:
        if path == "-":
            text = sys.stdin.read(LARGEST + 1)
        else:
            with open(path, encoding="utf-8") as handle:
                text = handle.read(LARGEST + 1)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise CommandError(f"{path}: not UTF-8 text: {exc.reason} at byte {exc.start}") from None
    try:
        source = load(text)
    except InvalidMiniCluster as exc:
        lines = "".join(f"{path}: {problem}\n" for problem in exc.problems)
        count = len(exc.problems)
        raise CommandError(f"{lines}{count} error{'s' if count > 1 else ''}", bare=True) from None
    for doubt in source.doubts:
        sys.stderr.write(f"{path}: {doubt}\n")
    mode, spec = mode_of(source.cluster), source.cluster.spec
    if mode is Mode.INTERACTIVE and not spec.interactive:
        sys.stderr.write(f"{path}: no command: the cluster is interactive and stays until it is stopped\n")
    if mode in (Mode.SUBMIT, Mode.BATCH) and make_plan(source.cluster).config.get("queues"):
        sys.stderr.write(
            f"{path}: spec.flux.brokerConfig: named queues begin stopped, and the job waits until somebody starts them "
            "(flux queue start --all)\n"
        )
    if mode is Mode.BATCH and 0 < spec.tasks < spec.size and not source.cluster.logging.quiet:
        sys.stderr.write(
            f"{path}: spec.tasks: the batch gets what {spec.tasks} task{'s take' if spec.tasks > 1 else ' takes'}, "
            f"not all {spec.size} nodes; tasks: 0 takes them\n"
        )
    return source


def _run(source: Source, path: str, as_json: bool, quiet: bool) -> int:
    from headrace.minicluster.local import StartError, run
    from headrace.minicluster.plan import Mode, make_plan
    from headrace.minicluster.unapplied import not_applied

    plan = make_plan(source.cluster)
    quiet = quiet or plan.quiet
    folder = os.getcwd() if path == "-" else os.path.dirname(os.path.abspath(path))
    ignored = not_applied(source.cluster) + source.others
    if plan.working_dir and not os.path.isdir(os.path.join(folder, plan.working_dir)):
        ignored.append(f"workingDir {plan.working_dir} (no such folder here, {folder} instead)")
    if ignored:
        sys.stderr.write(f"headrace-mini: not applied on this machine: {', '.join(ignored)}\n")

    def say(line: str) -> None:
        if not quiet:
            sys.stderr.write(f"headrace-mini: {line}\n")
            sys.stderr.flush()

    try:
        result = run(plan, folder, say)
    except StartError as exc:
        raise CommandError(str(exc)) from None
    if not (result.started or result.interrupted):
        sys.stderr.write(
            "headrace-mini: no broker was started: the commands before them (init, pre, brokerPre, workerPre) "
            f"ended with status {result.status}\n"
        )
    if plan.timed and result.started and plan.mode is not Mode.INTERACTIVE:
        times = result.times
        sys.stderr.write(f"FLUXTIME fluxsubmit wall time {_elapsed(times.run)}\n")
        sys.stderr.write(f"FLUXTIME fluxstart wall time {_elapsed(times.ready + times.run + times.delete)}\n")
    if as_json:
        print(json.dumps(_summary(plan.name, plan.size, result)))
    elif not quiet:
        sys.stderr.write(_table(result))
    # With `ignoreFailure` the cluster ends well whatever its command returned, unless somebody stopped it.
    return 0 if source.cluster.spec.ignore_failure and not result.interrupted else result.status


def _summary(name: str, size: int, result: Result) -> dict[str, object]:
    times = {key: round(value, 4) for key, value in result.times._asdict().items()}
    return {"name": name, "size": size, "status": result.status, "times": {**times, "total": result.times.total}}


def _table(result: Result) -> str:
    times = {**result.times._asdict(), "total": result.times.total}
    heads = "".join(f"{name.upper():>10}" for name in times)
    cells = "".join(f"{value:>9.3f}s" for value in times.values())
    return f"{heads}\n{cells}\n"


def _elapsed(seconds: float) -> str:
    """As time(1) writes %E: [hours:]minutes:seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:02.0f}" if hours else f"{minutes}:{rest:05.2f}"
