"""Warnings about keys of a configuration that was taken."""

from __future__ import annotations

import contextlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX = "flux-config: "


def show_warnings(handle: Any) -> None:
    """Say which keys of the new configuration nobody reads: it was taken, but not all that its author meant."""
    with contextlib.suppress(OSError):
        for line in handle.rpc("config.warnings").get()["lines"]:
            sys.stderr.write(f"{PREFIX}warning: {line}\n")
