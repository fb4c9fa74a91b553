"""`headrace fluxqueue COMMAND`: the queue for all pods of a cluster, what installs it, gRPC matching, and what its
users see of it (as a plugin `kubectl fluxqueue`).

A command is in a file of this package, with `add_arguments(parser, name)` and `main(options) -> int`; only the file of
the command that is run is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module

from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-fluxqueue: "
# What the program is called in usage: as a plugin `kubectl fluxqueue`.
_program = "headrace fluxqueue"

# The name of each command, its file, and its line in the help.
COMMANDS = {
    "run": ("serve", "Run the queue until it is told to stop"),
    "manifests": ("install", "Print the objects that install the queue"),
    "uninstall": ("install", "Remove the queue from a cluster, and release what waits in it"),
    "match": ("serve", "Serve gRPC matching on the graph that a client sends"),
    "history": (
        "history",
        "Print the jobs, waits and pod-hours of the past, from the queue of a cluster or from a store",
    ),
    "list": ("cluster", "List what waits and runs, each queue in its order"),
    "why": ("cluster", "Tell why a job waits, and what is known of its start"),
    "nodes": ("cluster", "List the nodes of the queues with what is free of them"),
    "graph": ("cluster", "Print the graph that a queue plans with"),
    "hold": ("cluster", "Keep a job that waits out of the order"),
    "release": ("cluster", "Put a job that is on hold back into its place"),
}


def _parser(chosen: str = "") -> Parser:
    """The parser of the command `chosen`, with no more than the names of the others; of all where none is chosen."""
    parser = Parser(
        _program,
        usage=f"{_program} {{{','.join(COMMANDS)}}} [OPTIONS]",
        description="Run the queue in which the pods of labelled namespaces wait, install it, or ask what it does",
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
    """The plugin `kubectl fluxqueue`, which kubectl runs as `kubectl-fluxqueue`."""
    from headrace.cli.main import headrace

    global PREFIX, _program
    PREFIX, _program = "kubectl-fluxqueue: ", "kubectl fluxqueue"
    return headrace(["fluxqueue", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    # Options may stand before the command, as those of kubectl do; their values may be words that are commands.
    before = ["", *argv]
    words = (at for at, word in enumerate(argv) if word in COMMANDS and before[at] not in _WITH_VALUES)
    at = next(words, 0)
    argv = argv[at : at + 1] + argv[:at] + argv[at + 1 :]
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status
