"""Whether a command colors what it prints."""

from __future__ import annotations

import sys


def stdout_colored(when: str) -> bool:
    """Whether `--color=WHEN` means that stdout gets colors: always, never, or auto (on a terminal)."""
    return when == "always" or (when == "auto" and sys.stdout.isatty())
