"""No option of a command is without a test: each occurs in a command line that some test runs.

That the line shows the option's effect is the business of the tables (test_options_*.py) and of the recordings.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace.cli import getopts
from headrace.cli.quick_arguments import QuickParser

TESTS = Path(__file__).parent.parent


def modules() -> Iterator[ModuleType]:
    folder = Path(getopts.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.stem != "__init__":
            yield importlib.import_module(f"headrace.cli.{path.stem}")


def options() -> Iterator[tuple[str, list[str]]]:
    """(command, spellings of one of its options), such as ("job attach", ["-E", "--show-events"])."""
    for module in modules():
        for value in list(vars(module).values()):
            if isinstance(value, getopts.Command):
                for short, long, _, _ in value.options:
                    if long != "help":
                        yield value.prog.removeprefix("flux-"), [f"-{short}"] * bool(short) + [f"--{long}"]
        if hasattr(module, "_parser"):
            parser = module._parser()
            yield from of_parser(parser.whole() if isinstance(parser, QuickParser) else parser)


def of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from of_parser(one)
        elif action.option_strings and action.dest != "help":
            yield parser.prog.removeprefix("flux-").removeprefix("flux "), list(action.option_strings)


@pytest.fixture(scope="module")
def lines_of_tests() -> list[str]:
    texts = [path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)]
    texts += [path.read_text() for path in (TESTS / "data").rglob("*.jsonl")]
    # Long lines of a table are cut into several: join them again.
    return [
        line for text in texts for line in re.sub(r'"\n\s*f?"', "", text).split("\n") if " -" in line or '"-' in line
    ]


def occurs(command: str, spellings: list[str], lines: list[str]) -> bool:
    """A long name anywhere, a short one in a line with the command's name, alone or in a cluster."""
    word = command.rpartition(" ")[2]
    for spelling in spellings:
        if spelling.startswith("--"):
            near = [line for line in lines if spelling in line]
            pattern = re.compile(rf"(?<![\w-]){spelling}(?![\w-])")
        else:
            near = [line for line in lines if word in line]
            pattern = re.compile(rf"\b{re.escape(word)}\b.*(?<![\w-])-\w*{spelling[1:]}")
        if any(pattern.search(line) for line in near):
            return True
    return False


def test_every_option_occurs_in_a_test(lines_of_tests):
    found = list(options())
    untested = [
        f"{command} {'/'.join(names)}" for command, names in found if not occurs(command, names, lines_of_tests)
    ]
    assert not untested
    # All kinds of commands were looked into.
    assert {"jobs", "job attach", "resource list", "start"} <= {command for command, _ in found}
