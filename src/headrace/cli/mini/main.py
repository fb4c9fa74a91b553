"""`headrace mini COMMAND`: MiniClusters of the Flux Operator on this machine and on Kubernetes.

Each command has a file of its own, `mini_COMMAND.py`, with `add_arguments(parser)` and `main(options) -> int`; only the
one that is run is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module

from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-mini: "

# The name of each command and its line in the help.
COMMANDS = {
    "run": "run FILE as brokers of this machine",
    "validate": "say everything wrong with FILE",
    "manifests": "print the Kubernetes objects of FILE, as the operator makes them",
    "apply": "send FILE to Kubernetes, and tell how far its pods are",
    "status": "tell how MiniClusters on Kubernetes are",
    "logs": "print what a MiniCluster's job has written on Kubernetes",
    "connect": "open a shell in a MiniCluster on Kubernetes",
    "scale": "change the number of a MiniCluster's pods on Kubernetes",
    "delete": "remove MiniClusters from Kubernetes",
}


def _parser(chosen: str = "") -> Parser:
    """The parser of the command `chosen`, with no more than the names of the others; of all where none is chosen."""
    parser = Parser(
        "headrace mini",
        usage=f"headrace mini {{{','.join(COMMANDS)}}} [OPTIONS] ...",
        description="Check a MiniCluster file of the Flux Operator, run it as brokers of this machine, or as pods",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, prog=f"headrace mini {name}", help=text, description=text.capitalize())
        if chosen in (name, ""):
            module = import_module(f"headrace.cli.mini.{name}")
            module.add_arguments(one)
            one.set_defaults(run=module.main)
    return parser


def kubectl() -> int:
    """The plugin `kubectl minicluster`, which kubectl runs as `kubectl-minicluster`."""
    from headrace.cli.main import headrace

    return headrace(["mini", *sys.argv[1:]])


def main(argv: List[str]) -> int:
    chosen = next((word for word in argv if not word.startswith("-")), "-")
    options = _parser(chosen).parse_args(argv)
    status: int = options.run(options)
    return status
