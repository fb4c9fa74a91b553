"""The reference of commands: a page for each, with the help texts that the commands themselves print.

A command is asked as a user would ask it, with `--help`; the subcommands that its text lists are asked in turn.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest import mock

from headrace.cli import main as driver

# Commands whose `--help` is that of the program they run.
_OF_OTHERS = {"python": "Runs the interpreter of this installation; all arguments are the interpreter's."}
_WIDTH = "84"
# How each kind of help text lists subcommands: those of Flux's C commands, and argparse.
_LISTS = (
    re.compile(r"^Common commands from .*:\n((?:   \S.*\n)+)", re.MULTILINE),
    re.compile(r"^  COMMAND\n((?:    .*\n)+)", re.MULTILINE),
)


def pages() -> Iterator[tuple[str, str]]:
    """(name of the file, Markdown) of the list of commands, and of each command."""
    rows = "".join(f"| [`flux {name}`]({name}.md) | {does} |\n" for name, (_, does) in driver.COMMANDS.items())
    yield (
        "index.md",
        "# Commands\n\nMade from the commands' own help texts. `headrace` is another name of `flux`.\n\n"
        f"| command | does |\n|---|---|\n{rows}",
    )
    for name, (_, does) in driver.COMMANDS.items():
        yield f"{name}.md", f"# flux {name}\n\n{does[0].upper()}{does[1:]}.\n\n{_sections(name)}"


def _sections(name: str) -> str:
    if name in _OF_OTHERS:
        return _OF_OTHERS[name] + "\n"
    text = help_text([name])
    parts = [_block(text)]
    for subcommand in subcommands(text):
        inner = help_text([name, subcommand])
        parts.append(f"## {name} {subcommand}\n\n{_block(inner)}")
        parts += [
            f"### {name} {subcommand} {last}\n\n{_block(help_text([name, subcommand, last]))}"
            for last in subcommands(inner)
        ]
    return "\n".join(parts)


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def subcommands(text: str) -> list[str]:
    """The names of subcommands that a help text lists, in its order."""
    found = (pattern.search(text) for pattern in _LISTS)
    lists = [match[1] for match in found if match]
    return list(
        dict.fromkeys(name for names in lists for name in re.findall(r"^ {3,4}([a-zR]\S*)", names, re.MULTILINE))
    )


def help_text(words: list[str]) -> str:
    """What `flux WORDS --help` prints. Raises LookupError for words that are no command with a help text."""
    out = io.StringIO()
    settings = {"COLUMNS": _WIDTH, "FLUX_IGNORE_NO_DOCS": "1", "LANG": "C.UTF-8"}
    with mock.patch.dict(os.environ, settings), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = driver.run_command(words[0], [*words[1:], "--help"])
    if status or not out.getvalue().strip():
        raise LookupError(f"flux {' '.join(words)} --help: status {status}, {out.getvalue()!r}")
    return out.getvalue()
