"""Whether a command colors what it prints."""

from __future__ import annotations

import os
import sys

WHEN = ("always", "never", "auto")


def unwanted() -> bool:
    """Whether the user wants no colors but those that an option asks for (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def stdout_colored(when: str) -> bool:
    """Whether `--color=WHEN` means that stdout gets colors: always, never, or auto (on a terminal)."""
    return when == "always" or (when == "auto" and sys.stdout.isatty() and not unwanted())
