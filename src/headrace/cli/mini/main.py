"""`headrace mini COMMAND`: MiniClusters of the Flux Operator on this machine and on Kubernetes.

A command is in a file of this package, with `add_arguments(parser, name)` and `main(options) -> int`; only the file of
the command that is run is imported.
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
    "run": ("run", "Run FILE as brokers of this machine"),
    "validate": ("check", "Say everything wrong with FILE"),
    "convert": ("check", "Print a Job, JobSet or TrainJob as a MiniCluster"),
    "manifests": ("check", "Print the Kubernetes objects of FILE, as the operator makes them"),
    "apply": ("apply", "Send FILE to Kubernetes, and tell how far its pods are"),
    "status": ("status", "Tell how MiniClusters and labelled Jobs on Kubernetes are"),
    "logs": ("pod", "Print what a MiniCluster's job has written on Kubernetes"),
    "connect": ("pod", "Open a shell in a MiniCluster on Kubernetes"),
    "hpa": ("change", "Have an autoscaler of Kubernetes size a MiniCluster by its queue"),
    "scale": ("change", "Change the number of a MiniCluster's pods on Kubernetes"),
    "delete": ("change", "Remove MiniClusters from Kubernetes"),
}


# `flux mini COMMAND` was the syntax of these commands of Flux until 2023. Of these, `headrace mini` itself has `run`
# only: it runs a MiniCluster if its single operand is a file that cannot be a program.
_FORMER = ("alloc", "batch", "bulksubmit", "run", "submit")
_NAMES = (".yaml", ".yml", ".json")


def _parser(chosen: str = "") -> Parser:
    """The parser of the command `chosen`, with no more than the names of the others; of all where none is chosen."""
    parser = Parser(
        program.command,
        usage=f"{program.command} {{{','.join(COMMANDS)}}} [OPTIONS] ...",
        description="Check a MiniCluster file of the Flux Operator, run it as brokers of this machine, or as pods",
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
    """The plugin `kubectl minicluster`, which kubectl runs as `kubectl-minicluster`."""
    from headrace.cli.main import headrace

    global PREFIX
    program.command = "kubectl minicluster"
    PREFIX = program.prefix()
    return headrace(["mini", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    if not program.is_plugin() and _submits_job(argv):
        from headrace.cli.main import run_command

        name = argv[0]
        program.tell(f"`flux mini {name}` is the syntax until 2023: running `flux {name}`")
        return run_command(name, argv[1:])
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status


def _submits_job(argv: List[str]) -> bool:
    """Whether `flux mini ARGV` is a command of Flux itself, to be run without the word `mini`."""
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
    return own_options and (not operands or (len(operands) == 1 and _is_data(operands[0])))


def _is_data(path: str) -> bool:
    """Whether this is standard input or a file, and not a program."""
    return path == "-" or (os.path.exists(path) and not os.path.isdir(path) and shutil.which(path) is None)
