"""`headrace experiment report DIR`."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser
    from headrace.experiments.report.study import Study


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="The folder of an experiment, which may still be running")
    parser.add_argument("--html", metavar="FILE", help="Write a page with charts and tables (-: to standard output)")
    parser.add_argument("--csv", metavar="FILE", help="Write a line for each run (-: to standard output)")
    parser.add_argument("--json", action="store_true", help="Print the numbers as JSON")


def main(options: Namespace) -> int:
    study = read_study(options.folder)
    if options.csv:
        from headrace.experiments.report.runs_csv import runs_csv

        write(options.csv, runs_csv(study.results))
        if not options.html and not options.json:
            return 0
    summary = study.summary()
    if options.html:
        from headrace.experiments.report.page import report_page

        write(options.html, report_page(study, summary))
    if options.json:
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode() + "\n")
    elif not options.html:
        from headrace.experiments.report.text import text

        sys.stdout.write(text(summary))
    return 0


def read_study(path: str) -> Study:
    """The folder of an experiment. Raises CommandError."""
    from headrace.experiments.report.study import read
    from headrace.experiments.store.folder import FolderError

    try:
        return read(path)
    except FolderError as exc:
        raise CommandError(str(exc)) from None


def write(path: str, text: str) -> None:
    """Write a file at once, or to standard output for "-". Raises CommandError."""
    if path == "-":
        sys.stdout.write(text)
        return
    from pathlib import Path

    from headrace.experiments.store.folder import write_file

    try:
        write_file(Path(path), text.encode())
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None
