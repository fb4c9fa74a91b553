"""`headrace experiment status DIR`."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="The folder of an experiment")
    parser.add_argument("--json", action="store_true", help="Print one JSON object")


def main(options: Namespace) -> int:
    from headrace.experiments.store.folder import Folder, FolderError
    from headrace.experiments.store.status import status

    try:
        found = status(Folder(options.folder))
    except FolderError as exc:
        raise CommandError(str(exc)) from None
    if options.json:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return 0
    width = max([len("CELL"), *(len(cell.cell) for cell in found.cells)])
    print(f"{'CELL':<{width}}  {'PLANNED':>7} {'DONE':>7} {'RUNNING':>7} {'FAILED':>7}")
    for cell in found.cells:
        print(f"{cell.cell:<{width}}  {cell.planned:>7} {cell.done:>7} {cell.running:>7} {cell.failed:>7}")
    if found.failed > len(found.failures):
        print(f"the last {len(found.failures)} of {found.failed} failed runs:")
    for result in found.failures:
        print(f"{result.cell}/{result.number}: {result.state}: {result.reason}")
    for problem in found.problems:
        print(problem)
    print(f"{found.name}: {found.state}, {found.done} of {found.planned} runs done, {found.failed} failed")
    return 0
