"""`headrace experiment resume DIR`."""

from __future__ import annotations

from headrace.cli.experiment.run import add_carrying_out, carry_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="The folder of an experiment that was interrupted")
    add_carrying_out(parser)


def main(options: Namespace) -> int:
    from headrace.experiments.store.folder import Folder

    return carry_out(Folder(options.folder), options)
