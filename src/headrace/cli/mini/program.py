"""What this program is called in usage, hints and errors: `headrace mini`, or as a plugin `kubectl minicluster`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


_OWN = "headrace mini"
command = _OWN


def is_plugin() -> bool:
    """Whether kubectl runs this program as its plugin."""
    return command != _OWN


def prefix() -> str:
    """What begins each line on standard error."""
    return f"{command.replace(' ', '-')}: "


def in_its_words(text: str) -> str:
    """A hint of the library, which knows the commands as `headrace mini COMMAND`, under the name of this program."""
    return text.replace(f"{_OWN} ", f"{command} ")


def tell(line: str) -> None:
    """Say on standard error what a command waits for or does."""
    sys.stderr.write(f"{prefix()}{in_its_words(line)}\n")
    sys.stderr.flush()
