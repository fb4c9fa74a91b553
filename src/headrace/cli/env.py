"""`flux env`: print the environment that selects this installation and instance, or run a command with it."""

from __future__ import annotations

import errno
import os

from headrace.cli.common import command_environment
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-env: "

_COMMAND = Command(
    "flux-env", "[COMMAND [ARGS...]]", "Print the environment of this installation and instance, or run COMMAND with it"
)


def main(argv: List[str]) -> int:
    argv = _COMMAND.parse(argv, stop_early=True).operands
    if not argv:
        for name in command_environment.NAMES:
            if name in os.environ:
                print(f'export {name}="{_quoted(os.environ[name])}"')
        return 0
    try:
        os.execvp(argv[0], argv)
    except ValueError:
        # An empty name, for which this Python does not even ask the system.
        raise CommandError(f"{argv[0]}: {os.strerror(errno.ENOENT)}", 127) from None
    except OSError as exc:
        raise CommandError(f"{argv[0]}: {exc.strerror}", 127 if isinstance(exc, FileNotFoundError) else 126) from None


def _quoted(text: str) -> str:
    """Text for double quotes in a shell."""
    return "".join(["\\" + char if char in '\\"$`' else char for char in text])
