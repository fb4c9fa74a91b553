"""Slices as text, `[START:STOP:STEP]` as in Python, for `flux job last` and job-manager.history.get."""

from __future__ import annotations


class SliceError(ValueError):
    """A text that is not a slice."""


def parse(text: str) -> slice:
    """Return the slice of a text. Raises SliceError."""
    parts = text[1:-1].split(":")
    if text[:1] == "[" and text[-1:] == "]" and 2 <= len(parts) <= 3:
        try:
            numbers = [int(part) if part else None for part in parts]
        except ValueError:
            numbers = [0, 0, 0]
        if numbers[2:] != [0]:
            return slice(*numbers)
    raise SliceError(f"could not parse python-style slice expression '{text}': [START:STOP] or [START:STOP:STEP]")
