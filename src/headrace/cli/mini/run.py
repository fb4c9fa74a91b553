"""`headrace mini run FILE`: runs a MiniCluster file with brokers on this machine."""

from __future__ import annotations

import json
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.mini.file import add_file, load_file
from headrace.cli.mini.program import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.minicluster.api.validate import Source
    from headrace.minicluster.run.local import Result


def add_arguments(parser: Parser, _name: str = "") -> None:
    parser.add_argument("--json", action="store_true", help="Print the times as one JSON object on the last line")
    parser.add_argument("-q", "--quiet", action="store_true", help="Print nothing but the job's output")
    add_file(parser)


def main(options: Namespace) -> int:
    return _run(load_file(options.file), options.file, options.json, options.quiet)


def _run(source: Source, path: str, as_json: bool, quiet: bool) -> int:
    from headrace.minicluster.api.plan import make_plan
    from headrace.minicluster.api.pod_names import of_minicluster, on_one_machine
    from headrace.minicluster.api.shell_text import Mode
    from headrace.minicluster.api.unapplied import not_applied
    from headrace.minicluster.run.local import StartError, run

    plan, unresolved = on_one_machine(make_plan(source.cluster), of_minicluster(source.cluster))
    silent, quiet = quiet, quiet or plan.quiet
    folder = os.getcwd() if path == "-" else os.path.dirname(os.path.abspath(path))
    ignored = not_applied(source.cluster) + source.others
    if plan.working_dir and not os.path.isdir(os.path.join(folder, plan.working_dir)):
        ignored.append(f"workingDir {plan.working_dir} (no such folder here, using {folder})")
    if ignored and not silent:
        tell(f"not applied on this machine: {', '.join(ignored)}")
    if unresolved and not silent:
        tell(f"names of pods that do not resolve on this machine: {', '.join(unresolved)}")

    def say(line: str) -> None:
        if not quiet:
            tell(line)

    try:
        result = run(plan, folder, say)
    except StartError as exc:
        raise CommandError(str(exc)) from None
    if not (result.started or result.interrupted):
        tell(
            "no broker was started: the commands before them (init, pre, brokerPre, workerPre) "
            f"ended with status {result.status}"
        )
    if plan.timed and result.started and plan.mode is not Mode.INTERACTIVE:
        times = result.times
        sys.stderr.write(f"FLUXTIME fluxsubmit wall time {_elapsed(times.run)}\n")
        sys.stderr.write(f"FLUXTIME fluxstart wall time {_elapsed(times.ready + times.run + times.delete)}\n")
    if as_json:
        print(json.dumps(_summary(plan.name, plan.size, result)))
    elif not quiet:
        sys.stderr.write(_table(result))
    # With `ignoreFailure` the status is 0 whatever the command returned, unless the user interrupted the run.
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
    """Seconds in the format %E of time(1): [hours:]minutes:seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:02.0f}" if hours else f"{minutes}:{rest:05.2f}"
