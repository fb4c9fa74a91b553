"""Decides whether a command colors its output."""

from __future__ import annotations

import os
import sys

WHEN = ("always", "never", "auto")


def unwanted() -> bool:
    """True if the user wants colors only on request by an option (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def stdout_colored(when: str) -> bool:
    """True if stdout is to be colored with `--color=WHEN`: always, never, or auto (on a terminal)."""
    return when == "always" or (when == "auto" and sys.stdout.isatty() and not unwanted())
