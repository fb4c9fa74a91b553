"""`headrace experiment list`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="Look in this folder and below it")
    parser.add_argument("--json", action="store_true", help="Print one JSON object for each experiment")


def main(options: Namespace) -> int:
    import json
    import sys

    from headrace.experiments.store.folder import Folder, FolderError
    from headrace.experiments.store.search import folders
    from headrace.experiments.store.status import status

    rows = []
    failed = False
    for path in folders(options.folder):
        try:
            found = status(Folder(path))
        except FolderError as exc:
            sys.stderr.write(f"headrace-experiment: {exc}\n")
            failed = True
            continue
        rows.append((path, found.name, found.state, found.planned, found.done, found.failed))
    if options.json:
        for row in rows:
            print(json.dumps(dict(zip(("folder", "name", "state", "planned", "done", "failed"), row))))
        return int(failed)
    width = max([len("FOLDER"), *(len(row[0]) for row in rows)])
    print(f"{'FOLDER':<{width}}  {'STATE':<11} {'PLANNED':>7} {'DONE':>7} {'FAILED':>7}  NAME")
    for path, name, state, planned, done, wrong in rows:
        print(f"{path:<{width}}  {state:<11} {planned:>7} {done:>7} {wrong:>7}  {name}")
    return int(failed)
