"""The program's name in usage and errors: `headrace mini`, or `kubectl minicluster` as a plugin."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


_OWN = "headrace mini"
command = _OWN


def is_plugin() -> bool:
    """True if kubectl runs this program as its plugin."""
    return command != _OWN


def prefix() -> str:
    """The prefix of each line on standard error."""
    return f"{command.replace(' ', '-')}: "


def in_its_words(text: str) -> str:
    """Replace `headrace mini` in a text of the library by the name of this program."""
    return text.replace(f"{_OWN} ", f"{command} ")


def tell(line: str) -> None:
    """Write a line about a command's progress to standard error."""
    sys.stderr.write(f"{prefix()}{in_its_words(line)}\n")
    sys.stderr.flush()
