"""A command line means the same whether it is read quickly or by argparse, and only odd ones need argparse."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import QuickParser, job_id, positive_int
from headrace.cli.jobs import main as jobs
from headrace.cli.submit import run, submit

COMMANDS = {"run": run, "submit": submit, "jobs": jobs}
ODD_AND_PLAIN = """
    -n -n2 -n=2 -n2x --ntasks --ntasks=2 --ntasks= --nta -N1 -x -xl -v -vv --env A=1 --env=A --env-remove=B --env-file
    -o pty -opty --setopt -- - -a -A -f --filter=run --count=3 -c -c0 --color --color=auto -w -w80 --stats --stats-only
    --json -u me --dry-run --urgency=hold --urgency true -5 5 ƒ1 1234 --nope -? --quiet=1
"""
WORDS = st.sampled_from(ODD_AND_PLAIN.split()) | st.text(alphabet="-= ax5", max_size=3)


class Refused(CommandError):
    """What argparse says of a line, as an exception."""


class Strict(Parser):
    def error(self, message):  # type: ignore[no-untyped-def]
        raise Refused(message)


def meanings(parser: QuickParser, argv: list[str]) -> tuple[object, object]:
    """What the line means to a quick parser and to argparse alone."""
    full = Strict("x")
    for names, settings in parser._added:
        full.add_argument(*names, **settings)
    results: list[object] = []
    for parse in (parser.parse_args, full.parse_args):
        try:
            results.append(vars(parse(list(argv))))
        except Refused as exc:
            results.append(str(exc))
    return results[0], results[1]


@given(st.sampled_from(sorted(COMMANDS)), st.lists(WORDS, max_size=7))
def test_a_line_means_what_argparse_makes_of_it(command: str, argv: list[str]) -> None:
    # argparse takes `--=` for an ambiguous option even among the words of a job's command, where it is none.
    assume(not any(word.startswith("--=") for word in argv))
    parser = COMMANDS[command]._parser()
    parser._full = lambda: Strict("x")
    if "-h" not in argv:
        quick, full = meanings(parser, argv)
        assert quick == full


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("run", "true"),
        ("run", "-n2 -N 1 --env-remove=LD_* --env X=1 -o pty --setopt=a.b=1 -l --time-limit=5m prog -n 5 --help"),
        ("run", "-v -- prog -v"),
        ("submit", "--cc=1-9 --quiet -c1 prog {cc}"),
        ("jobs", "-a --filter=run,sched -c 5 1234 5678"),
        ("jobs", ""),
    ],
)
def test_a_plain_line_needs_no_argparse(command: str, line: str) -> None:
    parser = COMMANDS[command]._parser()
    parser._full = lambda: pytest.fail("argparse was asked")
    parser.parse_args(line.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_what_is_typed_most_is_imported_without_argparse_and_re(command: str) -> None:
    slow = {"argparse", "enum", "json", "re", "typing"}
    name = COMMANDS[command].__name__
    code = f"import sys; sys.path[:0] = {sys.path}; import {name}; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_rules_of_the_environment_keep_their_order() -> None:
    for odd in ([], ["-vv"]):
        args = run._parser().parse_args(["--env=A=1", *odd, "--env-remove", "B", "--env-file=f", "--env=-C", "prog"])
        assert args.env == ["A=1", "-B", "^f", "-C"]


def test_types_say_what_is_wrong() -> None:
    assert (job_id("0x10"), positive_int("3")) == (16, 3)
    with pytest.raises(ArgumentTypeError, match="invalid JobID value: 'x y'"):
        job_id("x y")
    for text in ("0", "-1", "x"):
        with pytest.raises(ArgumentTypeError, match="must be a positive integer"):
            positive_int(text)
