"""`headrace fluxqueue release NAME`: what `hold.py` does, with the other outcome."""

from __future__ import annotations

from headrace.cli.fluxqueue.hold import add_arguments, main

__all__ = ["add_arguments", "main"]
