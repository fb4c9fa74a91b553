"""`headrace experiment COMMAND`: experiments from one file, their results and reports.

Each command is in a file of this package with `add_arguments(parser)` and `main(options) -> int`. Only the file of the
command that runs is imported.
"""

from __future__ import annotations

from importlib import import_module

from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-experiment: ERROR: "
_PROGRAM = "headrace experiment"

# The name of each command, which its file has, too, and its line in the help.
COMMANDS = {
    "init": "Write a new file, with comments",
    "plan": "List cells, runs and their order, with estimates of time and cost; run nothing",
    "run": "Carry out an experiment",
    "status": "Show how far an experiment is",
    "resume": "Continue an experiment that was interrupted",
    "report": "Summarize the runs: medians with intervals, failures, a page with charts",
    "compare": "Compare two experiments: ratios of medians, and which differences are significant",
    "list": "List the experiments in a folder",
}


def _parser(chosen: str = "") -> Parser:
    """The parser with the arguments of the command `chosen` and the names of the others; with all for ""."""
    parser = Parser(_PROGRAM, description="Run experiments: a matrix of programs, sizes and parameters, with reports")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, prog=f"{_PROGRAM} {name}", help=text, description=text)
        if chosen in (name, ""):
            module = import_module(f"headrace.cli.experiment.{name}")
            module.add_arguments(one)
            one.set_defaults(run=module.main)
    return parser


def main(argv: List[str]) -> int:
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status
