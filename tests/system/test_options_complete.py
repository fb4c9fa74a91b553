"""No option of a command is without a test: some test runs that command with that option.

That the line shows the option's effect is the business of the tables (test_options_*.py) and of the recordings.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from invocations import Options, in_source, in_text, of_command, of_parser
from option_lines import Line

from headrace import cli
from headrace.cli.common import getopts
from headrace.cli.common.quick_arguments import QuickParser

HERE = Path(__file__).parent
TESTS = HERE.parent
# What a program's name begins with where it is one of several words.
PREFIXES = ("flux-", "flux ", "headrace-", "headrace ")


def modules() -> Iterator[ModuleType]:
    """All modules of the commands, in the packages of their families, too."""
    for one in pkgutil.walk_packages(cli.__path__, "headrace.cli."):
        yield importlib.import_module(one.name)


def commands() -> Iterator[tuple[str, Options]]:
    """(program, options) of every command and subcommand."""
    for module in modules():
        for value in list(vars(module).values()):
            if isinstance(value, getopts.Command):
                yield value.prog, of_command(value)
        if hasattr(module, "_parser"):
            parser = module._parser()
            yield from of_parser(parser.full_parser() if isinstance(parser, QuickParser) else parser)


def without_prefix(program: str) -> str:
    return next((program[len(prefix) :] for prefix in PREFIXES if program.startswith(prefix)), program)


@pytest.fixture(scope="module")
def known() -> dict[str, Options]:
    return {without_prefix(program): options for program, options in commands()}


def lines_of_tables(module: ModuleType) -> Iterator[Line]:
    """The lines of a test module's tables, with all that the module has put into them."""
    for value in vars(module).values():
        if isinstance(value, list):
            yield from (line for line in value if isinstance(line, Line))


def recorded_lines(path: Path) -> Iterator[str]:
    for text in path.read_text().splitlines():
        entry = json.loads(text)
        if isinstance(entry, dict) and isinstance(entry.get("command"), str):
            yield entry["command"]


@pytest.fixture(scope="module")
def tested(known) -> dict[tuple[str, str], set[str]]:
    """The files of tests that use an option, by (command, option)."""
    found = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for use in in_source(path.read_text(), known):
            found[use].add(path.name)
    for path in (TESTS / "data").rglob("*.jsonl"):
        for line in recorded_lines(path):
            for use in in_text(line, known):
                found[use].add(path.name)
    for path in HERE.glob("test_options_*.py"):
        if path != Path(__file__):
            for line in lines_of_tables(importlib.import_module(path.stem)):
                for use in in_text(line.command, known):
                    found[use].add(path.name)
    return found


def test_every_option_of_every_command_is_used_by_a_test(known, tested):
    all_options = {(command, name) for command, options in known.items() for name in options.names.values()}
    assert sorted(f"{command} {name}" for command, name in all_options - tested.keys()) == []
    # All kinds of commands were looked into.
    assert {"jobs", "job attach", "resource list", "start", "overlay status", "mini run"} <= known.keys()


def test_long_options_may_be_cut_short_where_the_command_is_a_c_program_in_flux():
    """`flux start` is; `resource-query`, a tool of Fluxion's in C++, has a parser of its own.

    The commands of flux-accounting are Python programs that allow it.
    """
    parsers, exact = {}, set()
    for module in modules():
        if hasattr(module, "_parser"):
            parser = module._parser()
            parsers[module.__name__] = parser.full_parser() if isinstance(parser, QuickParser) else parser
        if any(isinstance(value, getopts.ExactCommand) for value in vars(module).values()):
            exact.add(module.__name__.rpartition(".")[2])
    short = {name for name, parser in parsers.items() if parser.allow_abbrev}
    assert {name for name in short if not name.startswith("headrace.cli.account.")} == {"headrace.cli.instance.start"}
    assert {name for name in parsers if name.startswith("headrace.cli.account.")} <= short
    assert exact == {"cron", "modprobe"}


def test_options_that_flux_takes_in_the_singular_too_are_taken(known):
    singular = {"--state": ("cancel", "resource list", "resource info", "resource R", "resource status")}
    singular["--dry"] = ("cancel", "update", "run", "submit", "bulksubmit", "batch", "alloc")
    singular["--require"] = ("run", "submit", "bulksubmit", "batch", "alloc")
    singular["--broker-opt"] = ("batch", "alloc")
    for option, names in singular.items():
        assert [name for name in names if option not in known[name].names] == [], option


def test_an_option_counts_only_for_the_command_that_gets_it(known):
    uses = {
        "flux update -v 7 a=b": {("update", "--verbose")},
        "flux queue list -n; flux update 7 a=-v": {("queue list", "--no-header")},
        "flux run -n2 sh -c 'flux job attach -vE 7' -q": {
            ("run", "--ntasks"),
            ("job attach", "--verbose"),
            ("job attach", "--show-events"),
        },
        "flux jobs --format=-n -c -a": {("jobs", "--format"), ("jobs", "--count")},
        "flux kvs get --no-such x": set(),
    }
    for line, expected in uses.items():
        assert set(in_text(line, known)) == expected, line
    source = '"""flux update -v"""\nflux("update", "-v")\nhostlist.main(["-q", "h"])\nrun([FLUX, "jobs", f"--{x}"])\n'
    assert set(in_source(source, known)) == {("update", "--verbose"), ("hostlist", "--quiet")}
