"""`headrace mini COMMAND`: MiniClusters of the Flux Operator on this machine and on Kubernetes.

Each command is in a file of this package with `add_arguments(parser, name)` and `main(options) -> int`. Only the file
of the command that runs is imported.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module

from headrace.cli.common.arguments import Parser
from headrace.cli.mini import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = program.prefix()

# The name of each command, its file, and its line in the help.
COMMANDS = {
    "run": ("run", "Run FILE with brokers on this machine"),
    "validate": ("check", "Check FILE and print all errors in it"),
    "convert": ("check", "Print a Job, JobSet or TrainJob as a MiniCluster"),
    "manifests": ("check", "Print the Kubernetes objects that the operator would create for FILE"),
    "apply": ("apply", "Apply FILE to Kubernetes, and show progress until its job runs"),
    "status": ("status", "Show the status of MiniClusters and labelled Jobs on Kubernetes"),
    "logs": ("pod", "Print the output of a MiniCluster's job on Kubernetes"),
    "connect": ("pod", "Open a shell in a MiniCluster on Kubernetes"),
    "hpa": ("change", "Create a HorizontalPodAutoscaler that sizes a MiniCluster by its queue"),
    "scale": ("change", "Change the number of pods of a MiniCluster on Kubernetes"),
    "delete": ("change", "Delete MiniClusters from Kubernetes"),
}


# Until 2023, Flux spelled these commands `flux mini COMMAND`. `run` is also a command of `headrace mini`: it runs a
# MiniCluster if its operand is a file, or the path of one, that cannot be a program.
_FORMER = ("alloc", "batch", "bulksubmit", "run", "submit")
_NAMES = (".yaml", ".yml", ".json")


def _parser(chosen: str = "") -> Parser:
    """The parser with the arguments of the command `chosen` and the names of the others; with all for ""."""
    parser = Parser(
        program.command,
        usage=f"{program.command} {{{','.join(COMMANDS)}}} [OPTIONS] ...",
        description="Check a MiniCluster file of the Flux Operator, run it on this machine or on Kubernetes",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name, (file, text) in COMMANDS.items():
        one = commands.add_parser(name, prog=f"{program.command} {name}", help=text, description=text)
        if chosen in (name, ""):
            module = import_module(f"headrace.cli.mini.{file}")
            module.add_arguments(one, name)
            one.set_defaults(run=module.main)
    return parser


def kubectl() -> int:
    """Run as the plugin `kubectl minicluster`: kubectl starts the program `kubectl-minicluster`."""
    from headrace.cli.main import headrace

    global PREFIX
    program.command = "kubectl minicluster"
    PREFIX = program.prefix()
    return headrace(["mini", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    if not program.is_plugin() and _submits_job(argv):
        from headrace.cli.main import run_command

        name = argv[0]
        program.tell(f"`flux mini {name}` is the old syntax (until 2023): running `flux {name}`")
        return run_command(name, argv[1:])
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status


def _submits_job(argv: List[str]) -> bool:
    """True if `flux mini ARGV` is the former spelling of the Flux command `flux ARGV`."""
    if not argv or argv[0] not in _FORMER:
        return False
    return argv[0] != "run" or not _runs_minicluster(argv[1:])


def _runs_minicluster(words: List[str]) -> bool:
    operands = [word for word in words if word == "-" or word[:1] != "-"]
    if len(operands) == 1 and operands[0].endswith(_NAMES):
        return True
    from headrace.cli.mini import run

    parser = Parser("")
    run.add_arguments(parser)
    own_options = all(word in operands or word in parser._option_string_actions for word in words)
    if not own_options or len(operands) < 2:
        return own_options and (not operands or _is_data(operands[0]))
    # Too many operands for a MiniCluster: the error is about them, unless one may be the program of a job. The first
    # word after an option may be the option's value.
    programs = [shutil.which(word) or shutil.which(os.path.join(".", word)) for word in operands]
    return _is_data(operands[0]) and not (programs[0] if words[0] == operands[0] else any(programs))


def _is_data(path: str) -> bool:
    """True for standard input, and for a path or an existing file that is not a program in PATH."""
    is_path = path.endswith(_NAMES) or "/" in path or os.path.exists(path)
    return path == "-" or (is_path and shutil.which(path) is None)
