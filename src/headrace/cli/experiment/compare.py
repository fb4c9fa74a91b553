"""`headrace experiment compare DIR DIR`."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from headrace.cli.common.arguments import Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("first", metavar="DIR", help="The folder of an experiment")
    parser.add_argument("second", metavar="DIR", help="The folder of the experiment to compare with it")
    parser.add_argument("--metric", metavar="M", default="", help="Compare this metric only")
    parser.add_argument("--html", metavar="FILE", help="Write a page with charts and tables (-: to standard output)")
    parser.add_argument("--json", action="store_true", help="Print the numbers as JSON")


def main(options: Namespace) -> int:
    from headrace.cli.experiment.report import read_study, write
    from headrace.experiments.report import comparison_page
    from headrace.experiments.report.comparison import compare
    from headrace.experiments.stats.optional import MissingExtra

    first, second = read_study(options.first), read_study(options.second)
    try:
        found = compare(first.summary(), second.summary(), options.metric)
    except ValueError as exc:
        raise CommandError(f"{options.first} and {options.second}: {exc}") from None
    except MissingExtra as exc:
        raise CommandError(f"compare {exc}") from None
    if options.html:
        write(options.html, comparison_page.comparison_page(found, (first.provenance, second.provenance)))
    if options.json:
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    elif not options.html:
        sys.stdout.write(comparison_page.comparison_text(found))
    return 0
