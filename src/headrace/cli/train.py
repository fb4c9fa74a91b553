"""`headrace train run FILE`: runs a Job, JobSet or TrainJob without Kubernetes.

It runs on brokers of this machine, or as a job of the instance in FLUX_URI.
"""

from __future__ import annotations

import json
import os
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.mini.file import add_foreign_file, load_foreign_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

    from headrace.flux_jobs.read.cluster import ForeignCluster


_MOST = (1 << 31) - 1


def _add_arguments(parser: Parser) -> None:
    add_foreign_file(parser)
    parser.add_argument("--nodes", metavar="N", type=_number, help="Run on N nodes (default: the number in FILE)")
    parser.add_argument(
        "--procs", metavar="P", type=_number, help="Run P processes per node (default: the number in FILE)"
    )
    parser.add_argument("--json", action="store_true", help="Print the result as one JSON object on the last line")


def _number(text: str) -> int:
    """A whole number of one or more, for argparse."""
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit() and len(text) < 11 and 1 <= int(text) <= _MOST):
        raise ArgumentTypeError(f"must be a whole number, 1 or more, not {text!r}")
    return int(text)


def _run_file(options: Namespace) -> int:
    from headrace.flux_jobs.read.running import not_applied, unresolved, with_sizes

    source = load_foreign_file(options.file, options.runtime)
    cluster = with_sizes(source.cluster, options.nodes, options.procs)
    folder = os.getcwd() if options.file == "-" else os.path.dirname(os.path.abspath(options.file))
    ignored = [*not_applied(cluster), *source.others]
    cwd = _directory(cluster, folder, ignored)
    if ignored:
        _tell(f"not applied without Kubernetes: {', '.join(ignored)}")
    in_instance = bool(os.environ.get("FLUX_URI"))
    unresolved_names = unresolved(cluster, local=not in_instance)
    if unresolved_names:
        _tell(f"names of pods that do not resolve without Kubernetes: {', '.join(unresolved_names)}")
    summary: Dict[str, Any] = {
        "name": cluster.name,
        "kind": cluster.kind,
        "nodes": cluster.size,
        "procs": cluster.procs,
        "tasks": cluster.tasks,
    }
    summary.update(_submit(cluster, cwd) if in_instance else _start(cluster, cwd))
    if options.json:
        print(json.dumps(summary))
    status: int = summary["status"]
    return status


def _tell(line: str) -> None:
    sys.stderr.write(f"headrace-train: {line}\n")
    sys.stderr.flush()


def _directory(cluster: ForeignCluster, folder: str, ignored: list[str]) -> str:
    """The job's working directory: the container's if it exists here, otherwise the file's folder."""
    from headrace.flux_jobs.read.running import working_dir

    wanted = os.path.join(folder, working_dir(cluster))
    if os.path.isdir(wanted):
        return wanted.rstrip("/") or "/"
    ignored.append(f"workingDir {wanted} (no such folder here, using {folder})")
    return folder


def _start(cluster: ForeignCluster, cwd: str) -> Dict[str, Any]:
    """Start brokers on this machine and run the cluster on them."""
    from headrace.engine.broker.launch import capacity
    from headrace.flux_jobs.read.running import plan
    from headrace.minicluster.run import local

    refused = capacity.refusal(cluster.size)
    if refused:
        raise CommandError(f"{cluster.size} nodes: {refused}; choose another number with --nodes")

    def say(line: str) -> None:
        if cluster.interactive:
            _tell(line)

    try:
        result = local.run(plan(cluster, local.job_environment(_tell), cwd), cwd, say)
    except local.StartError as exc:
        raise CommandError(str(exc)) from None
    times = {key: round(value, 4) for key, value in result.times._asdict().items()}
    return {"status": result.status, "times": {**times, "total": round(result.times.total, 4)}}


def _submit(cluster: ForeignCluster, cwd: str) -> Dict[str, Any]:
    """Run the cluster as a job of the instance in FLUX_URI."""
    from headrace.cli.job.attach import Attach
    from headrace.cli.submit import options as submit_options
    from headrace.flux_jobs.read.running import jobspec
    from headrace.formats.spec import jobid
    from headrace.wire.client.handle import Handle
    from headrace.wire.query.submission import jobspec_request

    base, _ = submit_options.caller().environment(())
    handle = Handle()
    request = jobspec_request(jobspec(cluster, base, cwd, gpus=True, local=False))
    job = handle.rpc("job-ingest.submit", payload=request).get()["id"]
    if cluster.interactive:
        _tell(f"the instance is job {jobid.encode(job, 'f58')}: flux proxy {jobid.encode(job, 'f58')}")
    return {"id": jobid.encode(job, "f58"), "status": Attach(handle, job).run()}


PREFIX = "headrace-train: "


def _parser() -> Parser:
    parser = Parser(
        "headrace train",
        usage="headrace train {run} [OPTIONS] ...",
        description="Run Kubernetes Jobs, JobSets and TrainJobs on brokers, without Kubernetes",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    text = "Run FILE on brokers of this machine, or as a job of the instance in FLUX_URI"
    one = commands.add_parser("run", prog="headrace train run", help=text, description=text)
    _add_arguments(one)
    one.set_defaults(run=_run_file)
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    status: int = options.run(options)
    return status
