"""`headrace fluxqueue COMMAND`: runs, installs and inspects the job queue of a Kubernetes cluster.

The command is also the plugin `kubectl fluxqueue`. Each subcommand is in a file of this package with
`add_arguments(parser, name)` and `main(options) -> int`. Only the file of the subcommand that runs is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module

from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-fluxqueue: "
# The program's name in usage: `kubectl fluxqueue` as a plugin.
_program = "headrace fluxqueue"

# The name of each command, its file, and its line in the help.
COMMANDS = {
    "run": ("serve", "Run the queue until SIGINT or SIGTERM"),
    "manifests": ("install", "Print the objects that install the queue"),
    "uninstall": ("install", "Remove the queue from a cluster and release all waiting objects"),
    "match": ("serve", "Serve gRPC matching on a graph that a client sends"),
    "history": (
        "history",
        "Print jobs, waits and pod-hours of the past, from the queue of a cluster or from a store",
    ),
    "list": ("cluster", "List waiting and running jobs, in the order of each queue"),
    "why": ("cluster", "Explain why a job waits, and when it is expected to start"),
    "nodes": ("cluster", "List the nodes of the queues and their free resources"),
    "graph": ("cluster", "Print the resource graph of a queue"),
    "hold": ("cluster", "Hold a waiting job, so that it does not start"),
    "release": ("cluster", "Release a held job into its place in the queue"),
}


def _parser(chosen: str = "") -> Parser:
    """The parser with the arguments of the command `chosen` and the names of the others; with all for ""."""
    parser = Parser(
        _program,
        usage=f"{_program} {{{','.join(COMMANDS)}}} [OPTIONS]",
        description="Run, install or inspect the queue in which the jobs of labelled namespaces wait",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name, (file, text) in COMMANDS.items():
        one = commands.add_parser(name, prog=f"{_program} {name}", help=text, description=text)
        if chosen in (name, ""):
            module = import_module(f"headrace.cli.fluxqueue.{file}")
            module.add_arguments(one, name)
            one.set_defaults(run=module.main)
    return parser


# The options of kubectl that take a value.
_WITH_VALUES = ("-n", "--namespace", "--kubeconfig", "--context")


def kubectl() -> int:
    """Run as the plugin `kubectl fluxqueue`: kubectl starts the program `kubectl-fluxqueue`."""
    from headrace.cli.main import headrace

    global PREFIX, _program
    PREFIX, _program = "kubectl-fluxqueue: ", "kubectl fluxqueue"
    return headrace(["fluxqueue", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    # As with kubectl, options may come before the command. Their values may be equal to the name of a command.
    before = ["", *argv]
    words = (at for at, word in enumerate(argv) if word in COMMANDS and before[at] not in _WITH_VALUES)
    at = next(words, 0)
    argv = argv[at : at + 1] + argv[:at] + argv[at + 1 :]
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status
