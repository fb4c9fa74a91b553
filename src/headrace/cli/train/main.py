"""`headrace train COMMAND`: Jobs, JobSets and TrainJobs without Kubernetes.

Each command has a file of its own in this package, with `add_arguments(parser)` and `main(options) -> int`.
"""

from __future__ import annotations

from headrace.cli.common.arguments import Parser
from headrace.cli.train import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-train: "


def _parser() -> Parser:
    parser = Parser(
        "headrace train",
        usage="headrace train {run} [OPTIONS] ...",
        description="Run the Jobs, JobSets and TrainJobs of Kubernetes by brokers, without Kubernetes",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    text = "Run FILE by brokers of this machine, or as a job of the instance in FLUX_URI"
    one = commands.add_parser("run", prog="headrace train run", help=text, description=text)
    run.add_arguments(one)
    one.set_defaults(run=run.main)
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(argv)
    status: int = options.run(options)
    return status
