"""`headrace mini COMMAND`: MiniClusters of the Flux Operator on this machine and on Kubernetes.

Each command has a file of its own, `mini_COMMAND.py`, with `add_arguments(parser)` and `main(options) -> int`; only the
one that is run is imported.
"""

from __future__ import annotations

from importlib import import_module

from headrace.cli.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "headrace-mini: "

# command: what it does
COMMANDS = {
    "run": "run FILE as brokers of this machine",
    "validate": "say everything wrong with FILE",
    "manifests": "print the Kubernetes objects of FILE, as the operator makes them",
}


def main(argv: List[str]) -> int:
    parser = Parser(
        "headrace mini",
        usage=f"headrace mini {{{','.join(COMMANDS)}}} [OPTIONS] FILE",
        description="Check a MiniCluster file of the Flux Operator, run it as brokers of this machine, or as pods",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), "")
    module = None
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, prog=f"headrace mini {name}", help=text, description=text.capitalize())
        if name == chosen:
            module = import_module(f"headrace.cli.mini_{name}")
            module.add_arguments(one)
    options = parser.parse_args(argv)
    assert module is not None  # argparse refuses other names
    status: int = module.main(options)
    return status
